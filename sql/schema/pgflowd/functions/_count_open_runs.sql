-- _count_open_runs(flow_slug): returns how many runs of the flow are under way or planned, by at most ten
-- thousand messages of each queue, waits and planned runs, since to count more takes too long.
-- Called by: served_versions.   Locks: nothing.
create or replace function pgflowd._count_open_runs(flow_slug text)
returns bigint language plpgsql stable set search_path = '', pg_temp as $$
declare
  queue record;
  found uuid[];
  open uuid[] := array(
    select pgflowd._waiting_runs(_count_open_runs.flow_slug)
     union all
    (select run.run_id from pgflowd.runs as run
      where run.flow_slug = _count_open_runs.flow_slug and run.state = 'planned' limit 10000));
begin
  for queue in
    select to_regclass(pgflowd._queue_table(known.queue_name)) as messages
      from pgflowd._queues(_count_open_runs.flow_slug) as known
  loop
    if queue.messages is not null then
      execute format($query$
        select array_agg(distinct task.run_id)
          from (select one.msg_id from %s as one limit 10000) as message
         cross join lateral (
           select one.run_id from pgflow.step_tasks as one
            where one.flow_slug = $1 and one.message_id = message.msg_id
              and one.status in ('queued', 'started') offset 0) as task
        $query$, queue.messages) into found using _count_open_runs.flow_slug;
      open := open || found;
    end if;
  end loop;
  return (select count(distinct one) from unnest(open) as one);
end $$;
