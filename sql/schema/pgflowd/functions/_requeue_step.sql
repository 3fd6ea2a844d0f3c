-- _requeue_step(run_id, step_slug): gives each unfinished task of a started step a new message and
-- all its attempts back; returns their number. The step counts all its tasks again. A task with an
-- open attempt is still executed somewhere: it stays started, its new message is hidden until the
-- lease ends and counts as read, and its worker is woken to learn that the attempt is revoked.
-- Checkpoints stay, but those of waits that timed out, so that the task waits again. If the step's undo is for what was attempted, a task of
-- which no attempt is kept gets one.
-- Called by: retry.   Locks: messages, waits; the caller holds run, step and tasks.
create or replace function pgflowd._requeue_step(run_id uuid, step_slug text)
returns int language plpgsql set search_path = '', pg_temp as $$
declare
  task_indexes int[];
  old_ids bigint[];
  queue text;
  flow text;
  new_ids bigint[];
  hidden record;
begin
  select array_agg(task.task_index order by task.task_index),
         array_agg(task.message_id), min(task.queue_name), min(task.flow_slug)
    into task_indexes, old_ids, queue, flow
    from pgflow.step_tasks as task
   where task.run_id = _requeue_step.run_id and task.step_slug = _requeue_step.step_slug
     and task.status <> 'completed';
  if task_indexes is null then
    return 0;
  end if;
  delete from pgflowd.waits as wait
   where wait.run_id = _requeue_step.run_id and wait.step_slug = _requeue_step.step_slug;
  delete from pgflowd.checkpoints as checkpoint
   where checkpoint.run_id = _requeue_step.run_id and checkpoint.step_slug = _requeue_step.step_slug
     and checkpoint.task_index = any (task_indexes)
     and checkpoint.name ~ '^(signal|runs) ' and checkpoint.data ? 'timeout';
  perform pgflow._archive(queue, old_ids);
  new_ids := pgflow._send_messages(
    flow, 0, array_fill(_requeue_step.run_id, array[cardinality(task_indexes)]),
    array_fill(_requeue_step.step_slug, array[cardinality(task_indexes)]), task_indexes);
  for hidden in
    select array_agg(new.msg_id) as msg_ids, attempt.lease_until
      from unnest(task_indexes, new_ids) as new (task_index, msg_id)
      join pgflowd.attempts as attempt
        on attempt.run_id = _requeue_step.run_id and attempt.step_slug = _requeue_step.step_slug
       and attempt.task_index = new.task_index and attempt.ended_at is null
     group by attempt.lease_until
  loop
    execute format('update %s as message set vt = $2, read_ct = 1 where message.msg_id = any ($1)',
                   pgflowd._queue_table(queue))
      using hidden.msg_ids, hidden.lease_until;
    perform pgflowd._wake(queue);
  end loop;
  insert into pgflowd.attempts (run_id, step_slug, task_index, flow_slug, worker_id, msg_id, attempt,
                                started_at, lease_until, ended_at, outcome, error_message)
  select task.run_id, task.step_slug, task.task_index, task.flow_slug,
         coalesce(task.last_worker_id, '00000000-0000-0000-0000-000000000000'), task.message_id,
         task.attempts_count, coalesce(task.started_at, task.queued_at), now(), now(),
         case task.status when 'failed' then 'failed' else 'lost' end, task.error_message
    from pgflowd.step_options as option
    join pgflow.step_tasks as task
      on task.run_id = _requeue_step.run_id and task.step_slug = option.step_slug
   where option.flow_slug = flow and option.step_slug = _requeue_step.step_slug
     and option.undo = 'attempted' and task.status <> 'completed' and task.attempts_count > 0
     and not exists (select from pgflowd.attempts as attempt
                      where attempt.run_id = task.run_id and attempt.step_slug = task.step_slug
                        and attempt.task_index = task.task_index);
  update pgflow.step_tasks as task
     set status = case when held.token is null then 'queued' else 'started' end,
         message_id = new.msg_id,
         attempts_count = case when held.token is null then 0 else task.attempts_count end,
         started_at = case when held.token is not null
                           then greatest(held.started_at, task.queued_at) end,
         failed_at = null, completed_at = null, output = null, error_message = null,
         last_worker_id = case when held.token is not null then task.last_worker_id end
    from unnest(task_indexes, new_ids) as new (task_index, msg_id)
    left join pgflowd.attempts as held
      on held.run_id = _requeue_step.run_id and held.step_slug = _requeue_step.step_slug
     and held.task_index = new.task_index and held.ended_at is null
   where task.run_id = _requeue_step.run_id and task.step_slug = _requeue_step.step_slug
     and task.task_index = new.task_index;
  update pgflow.step_states as state
     set remaining_tasks = cardinality(task_indexes)
   where state.run_id = _requeue_step.run_id and state.step_slug = _requeue_step.step_slug;
  perform pgflowd._clear_stalls(_requeue_step.run_id, _requeue_step.step_slug);
  return cardinality(task_indexes);
end $$;
