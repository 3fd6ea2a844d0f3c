-- requeue_task(run_id, step_slug, task_index, stale_threshold, actor, reason): queues a stalled task again
-- with a new message, without spending the attempt; its open attempt closes as stalled. One in quarantine
-- waits no longer, and may stall `crash_limit` times again.
-- False, and nothing is done, if the task is not stalled (any more): it may be at work.
-- It resets how often the tasks of this step were recovered.
-- Called by: `pgflowd stalled requeue`, operators.
-- Locks: the run, the step, the task; attempts; its wait; messages.
create or replace function pgflowd.requeue_task(
  run_id uuid, step_slug text, task_index int, stale_threshold interval, actor text,
  reason text default null)
returns boolean language plpgsql security definer set search_path = '', pg_temp as $$
declare
  task pgflow.step_tasks;
  queue text;
  new_ids bigint[];
begin
  task := pgflowd._lock_stalled(requeue_task.run_id, requeue_task.step_slug,
                                requeue_task.task_index, requeue_task.stale_threshold);
  if task.run_id is null then
    return false;
  end if;
  update pgflowd.attempts as attempt
     set ended_at = now(), outcome = 'stalled',
         error_message = left(concat(
           'requeued by ', coalesce(requeue_task.actor, session_user),
           ': ' || nullif(requeue_task.reason, '')), 4000)
   where attempt.run_id = task.run_id and attempt.step_slug = task.step_slug
     and attempt.task_index = task.task_index and attempt.ended_at is null;
  delete from pgflowd.waits as wait
   where wait.run_id = task.run_id and wait.step_slug = task.step_slug
     and wait.task_index = task.task_index;
  queue := task.queue_name;
  perform pgflow._archive(queue, array[task.message_id]) where task.message_id is not null;
  new_ids := pgflow._send_messages(task.flow_slug, 0, array[task.run_id], array[task.step_slug],
                                   array[task.task_index]);
  update pgflow.step_tasks as known
     set status = 'queued', message_id = new_ids[1], started_at = null, last_worker_id = null,
         attempts_count = case known.status when 'started' then greatest(known.attempts_count - 1, 0)
                                            else known.attempts_count end
   where known.run_id = task.run_id and known.step_slug = task.step_slug
     and known.task_index = task.task_index;
  perform pgflowd._clear_stalls(task.run_id, task.step_slug);
  perform pgflowd._record_action(
    'requeue_task', requeue_task.actor, run_id => task.run_id, step_slug => task.step_slug,
    task_index => task.task_index, reason => requeue_task.reason);
  return true;
end $$;
