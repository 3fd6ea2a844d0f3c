-- give_up_task(run_id, step_slug, task_index, stale_threshold, reason, actor): fails a stalled task
-- for good, as if its last attempt had failed; its run goes on as the step's options say.
-- False, and nothing is done, if the task is not stalled (any more): it may be at work.
-- Called by: `pgflowd stalled fail`, operators.
-- Locks: the run, the step, the task; see fail_task.
create or replace function pgflowd.give_up_task(
  run_id uuid, step_slug text, task_index int, stale_threshold interval, reason text, actor text)
returns boolean language plpgsql set search_path = '' as $$
declare
  task pgflow.step_tasks;
begin
  task := pgflowd._lock_stalled(give_up_task.run_id, give_up_task.step_slug,
                                give_up_task.task_index, give_up_task.stale_threshold);
  return task.run_id is not null and pgflowd._give_up(
    task.run_id, task.step_slug, task.task_index,
    left(concat('stalled, and given up by ', coalesce(give_up_task.actor, session_user),
                ': ' || nullif(give_up_task.reason, '')), 4000));
end $$;
