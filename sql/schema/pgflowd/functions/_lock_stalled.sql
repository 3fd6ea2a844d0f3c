-- _lock_stalled(run_id, step_slug, task_index, stale_threshold): locks a stalled task with its run
-- and step, and returns it; only nulls if it is not stalled once it is locked.
-- PF002 for an unknown task.
-- Called by: give_up_task, requeue_task.   Locks: the run, the step, the task.
create or replace function pgflowd._lock_stalled(
  run_id uuid, step_slug text, task_index int, stale_threshold interval)
returns pgflow.step_tasks language plpgsql set search_path = '', pg_temp as $$
declare
  task pgflow.step_tasks;
begin
  perform from pgflow.runs as run where run.run_id = _lock_stalled.run_id for no key update;
  perform from pgflow.step_states as state
    where state.run_id = _lock_stalled.run_id and state.step_slug = _lock_stalled.step_slug
      for no key update;
  select known.* into task from pgflow.step_tasks as known
   where known.run_id = _lock_stalled.run_id and known.step_slug = _lock_stalled.step_slug
     and known.task_index = _lock_stalled.task_index for no key update;
  if task.run_id is null then
    raise exception 'there is no %', pgflowd._task_name(
      _lock_stalled.run_id, _lock_stalled.step_slug, _lock_stalled.task_index)
      using errcode = 'PF002';
  elsif not exists (
    select from pgflowd.stalled_tasks(_lock_stalled.stale_threshold, null) as stalled
     where stalled.run_id = task.run_id and stalled.step_slug = task.step_slug
       and stalled.task_index = task.task_index) then
    return null;
  end if;
  return task;
end $$;
