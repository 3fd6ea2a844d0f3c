-- _without_message(run_ids, width): returns the queued tasks of these runs whose message is gone from
-- the queue, as after pgmq.purge_queue: no worker ever meets them. One that waits has none, and is
-- not among them. With `width` only so many tasks of
-- each step are looked at, from a random one on. Where a queue is missing there is nothing to send
-- to, so its tasks are left out.
-- Called by: run_violations, resend, stalled_tasks.   Locks: nothing.
create or replace function pgflowd._without_message(run_ids uuid[], width int default null)
returns table (run_id uuid, step_slug text, task_index int)
language plpgsql stable set search_path = '', pg_temp as $$
#variable_conflict use_column
declare
  queue record;
begin
  for queue in
    select task.queue_name as name, array_agg(task.run_id) as runs,
           array_agg(task.step_slug) as steps, array_agg(task.task_index) as indexes,
           array_agg(task.message_id) as msg_ids
      from pgflow.runs as run
     cross join lateral (
       select one.step_slug,
              floor(random() * greatest(1, one.initial_tasks - _without_message.width + 1))::int
              as first_index
         from pgflow.step_states as one
        where one.run_id = run.run_id and one.status = 'started' offset 0) as state
     cross join lateral (
       select one.* from pgflow.step_tasks as one
        where one.run_id = run.run_id and one.step_slug = state.step_slug
          and one.task_index >= case when _without_message.width is null then 0
                                     else state.first_index end
          and one.task_index < case when _without_message.width is null then 2147483647
                                    else state.first_index + _without_message.width end
          and one.status = 'queued' offset 0) as task
     where run.run_id = any (_without_message.run_ids) and run.status = 'started'
     group by 1
  loop
    continue when to_regclass(pgflowd._queue_table(queue.name)) is null;
    return query execute format(
      'select task.* from unnest($1, $2, $3, $4) as known (run_id, step_slug, task_index, msg_id)
        cross join lateral (select known.run_id, known.step_slug, known.task_index) as task
        where not exists (select from %s as message where message.msg_id = known.msg_id)
          and not exists (select from pgflowd.waits as wait
                           where wait.run_id = known.run_id and wait.step_slug = known.step_slug
                             and wait.task_index = known.task_index)',
      pgflowd._queue_table(queue.name))
      using queue.runs, queue.steps, queue.indexes, queue.msg_ids;
  end loop;
end $$;
