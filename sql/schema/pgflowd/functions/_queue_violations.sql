-- _queue_violations(flow_slug, queue_name, queue, max_rows): returns I5 to I7 and I15 of one queue of
-- one flow; `queue` is its table, null when that is missing. Each message's task is looked up by its key,
-- whatever the statistics say: hence `offset 0`. I7 reads the queue and not the archive,
-- which anybody may empty.
-- Called by: queue_violations.   Locks: nothing.
create or replace function pgflowd._queue_violations(
  flow_slug text, queue_name text, queue regclass, max_rows int)
returns table (invariant text, flow text, run_id uuid, step_slug text, task_index int, detail text)
language plpgsql stable set search_path = '', pg_temp as $$
begin
  if queue is null then
    return query select 'I5', _queue_violations.flow_slug, null::uuid, null::text, null::int,
                        format('the flow has no queue %s', _queue_violations.queue_name);
    return;
  end if;
  return query execute format($query$
    select 'I6', $1, null::uuid, null::text, null::int,
           'message ' || message.msg_id || ' has no open task: ' || left(message.message::text, 200)
      from (select one.* from %1$s as one order by one.msg_id limit 10000) as message
     where not exists (
       select from pgflow.step_tasks as task
         join pgflow.runs as run on run.run_id = task.run_id
        where task.flow_slug = $1 and task.message_id = message.msg_id
          and task.status in ('queued', 'started') and run.status = 'started'
          and task.queue_name = $3 offset 0)
     limit $2
    $query$, queue) using _queue_violations.flow_slug, max_rows, queue_name;
  return query execute format($query$
    select 'I7', task.flow_slug, task.run_id, task.step_slug, task.task_index,
           'the task is completed, and its message is still in the queue'
      from (select one.* from %1$s as one order by one.msg_id limit 10000) as message
     cross join lateral (
       select one.* from pgflow.step_tasks as one
        where one.flow_slug = $1 and one.message_id = message.msg_id offset 0) as task
     where task.status = 'completed' and task.queue_name = $3
     limit $2
    $query$, queue) using _queue_violations.flow_slug, max_rows, queue_name;
  return query execute format($query$
    select 'I15', task.flow_slug, task.run_id, task.step_slug, task.task_index,
           'the task waits, and its message is in the queue'
      from (select one.* from %1$s as one order by one.msg_id limit 10000) as message
     cross join lateral (
       select one.* from pgflow.step_tasks as one
        where one.flow_slug = $1 and one.message_id = message.msg_id offset 0) as task
     cross join lateral (
       select from pgflowd.waits as one
        where one.run_id = task.run_id and one.step_slug = task.step_slug
          and one.task_index = task.task_index offset 0) as wait
     where task.queue_name = $3
     limit $2
    $query$, queue) using _queue_violations.flow_slug, max_rows, queue_name;
end $$;
