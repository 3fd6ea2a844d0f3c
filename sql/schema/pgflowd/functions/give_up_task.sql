-- give_up_task(run_id, step_slug, task_index, stale_threshold, reason, actor): fails a stalled task
-- for good, as if its last attempt had failed; its run goes on as the step's options say.
-- False, and nothing is done, if the task is not stalled (any more): it may be at work.
-- Called by: `pgflowd stalled fail`, operators.
-- Locks: the run, the step, the task; see fail_task.
create or replace function pgflowd.give_up_task(
  run_id uuid, step_slug text, task_index int, stale_threshold interval, reason text, actor text)
returns boolean language plpgsql security definer set search_path = '', pg_temp as $$
declare
  task pgflow.step_tasks;
begin
  task := pgflowd._lock_stalled(give_up_task.run_id, give_up_task.step_slug,
                                give_up_task.task_index, give_up_task.stale_threshold);
  if task.run_id is null or not pgflowd._give_up(
       task.run_id, task.step_slug, task.task_index,
       left(concat('stalled, and given up by ', coalesce(give_up_task.actor, session_user),
                   ': ' || nullif(give_up_task.reason, '')), 4000)) then
    return false;
  end if;
  perform pgflowd._record_action(
    'give_up_task', give_up_task.actor, run_id => task.run_id, step_slug => task.step_slug,
    task_index => task.task_index, reason => give_up_task.reason);
  return true;
end $$;
