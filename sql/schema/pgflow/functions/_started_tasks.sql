-- _started_tasks(flow_slug): returns the started tasks of a flow. They are found through the
-- queue, which holds open work only, and not by a scan of all tasks there ever were; there by the
-- index of what was read, so messages that wait cost nothing, with or without a delay. The first
-- hundred messages are looked at in any case, because a task may have been started by hand. Tasks
-- without a message have an index, together with those that recovery gave up, whose messages are
-- archived. Most queues are empty, so that is asked first: it is planned in a tenth of the time.
-- Called by: _recover_stalled, pgflowd._started_tasks.   Locks: nothing.
create or replace function pgflow._started_tasks(flow_slug text)
returns setof pgflow.step_tasks language plpgsql stable set search_path = '', pg_temp as $$
declare
  queue constant text := 'q_' || pgflow._queue_name(_started_tasks.flow_slug);
  has_messages boolean := false;
begin
  if to_regclass(format('pgmq.%I', queue)) is not null then
    execute format('select exists (select from pgmq.%I)', queue) into has_messages;
  end if;
  if has_messages then
    return query execute format($query$
      select task.*
        from (select one.msg_id from pgmq.%1$I as one where one.read_ct > 0
               union
              (select one.msg_id from pgmq.%1$I as one order by one.msg_id limit 100)) as message
       cross join lateral (
         select one.* from pgflow.step_tasks as one
          where one.flow_slug = $1 and one.message_id = message.msg_id offset 0) as task
       where task.status = 'started' and task.permanently_stalled_at is null
      $query$, queue)
      using _started_tasks.flow_slug;
  end if;
  return query
    select task.* from pgflow.step_tasks as task
     where task.flow_slug = _started_tasks.flow_slug and task.status = 'started'
       and (task.message_id is null or task.permanently_stalled_at is not null);
end $$;
