-- _archive(flow_slugs, message_ids): archives messages, one call per queue. Nulls and messages
-- that are archived already are ignored; what has an id of the archive is deleted.
-- Called by: _archive_task_message, _close_tasks, _complete_tasks, _fail_tasks,
-- _fail_type_violation, _recover_stalled.
-- Locks: the messages (tasks are locked already).
create or replace function pgflow._archive(flow_slugs text[], message_ids bigint[])
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  queue record;
begin
  for queue in
    select pgflow._queue_name(done.flow_slug) as name,
           array_agg(done.message_id order by done.message_id) as messages
      from unnest(flow_slugs, message_ids) as done (flow_slug, message_id)
     where done.message_id is not null
     group by 1
  loop
    begin
      perform pgmq.archive(queue.name, queue.messages);
    exception when unique_violation then
      perform pgflowd._archive(queue.name, queue.messages);
    end;
  end loop;
end $$;
