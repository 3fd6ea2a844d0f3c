-- _prune_leftovers(before, flow_slug, most): deletes what pruned runs leave behind: archived messages from
-- before that moment and from before the oldest run that is left, which thus keeps its own; so many
-- of each queue at most, of one flow or (null) of all; and then workers.
-- Called by: prune, prune_expired, prune_next.   Locks: these rows.
create or replace function pgflowd._prune_leftovers(before timestamptz, flow_slug text, most int default 10000)
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  archive record;
begin
  for archive in
    select pgflowd._queue_table(queue.queue_name, 'a') as messages,
           least(_prune_leftovers.before, (
             select run.started_at from pgflow.runs as run
              where run.flow_slug = flow.flow_slug order by run.started_at limit 1)) as before
      from pgflow.flows as flow
     cross join lateral pgflowd._queues(flow.flow_slug) as queue
     where _prune_leftovers.flow_slug is null
        or flow.flow_slug = any (pgflowd.flows_of(_prune_leftovers.flow_slug))
     order by queue.queue_name
  loop
    continue when to_regclass(archive.messages) is null;
    begin
      execute format(
        'delete from %1$s as message where message.msg_id = any (array(
           select one.msg_id from %1$s as one
            where one.archived_at < $1 order by one.archived_at limit $2))', archive.messages)
        using archive.before, _prune_leftovers.most;
    exception when undefined_table then
      continue;  -- somebody has deleted the flow meanwhile
    end;
  end loop;
  if _prune_leftovers.flow_slug is null then
    if pg_relation_size('pgflow.step_tasks') < 200000000 then  -- else it reads too much; people do it
      perform pgflow._prune_workers(_prune_leftovers.before, 10000);
    end if;
  end if;
end $$;
