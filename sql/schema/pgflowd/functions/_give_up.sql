-- _give_up(run_id, step_slug, task_index, error_message): fails a task that is started, or queued
-- without a message, for good, as if its last attempt had failed, and closes its attempt as stalled
-- (E408). False, and nothing is done, while another transaction has locked the run or one of its tasks:
-- the next sweep tries again. The caller holds the lock of the task. If that has failed the run, a
-- notice, PF011, says so: its detail is an object with run, flow, step and error.
-- Called by: give_up_task, _recover_some, _sweep_unleased_task.
-- Locks: see _lock_run and fail_task.
create or replace function pgflowd._give_up(
  run_id uuid, step_slug text, task_index int, error_message text)
returns boolean language plpgsql set search_path = '', pg_temp as $$
declare
  failed pgflow.runs;
begin
  if not pgflowd._lock_run(_give_up.run_id, 'started') then
    return false;
  end if;
  delete from pgflowd.waits as wait
   where wait.run_id = _give_up.run_id and wait.step_slug = _give_up.step_slug
     and wait.task_index = _give_up.task_index;
  update pgflow.step_tasks as task
     set status = 'started',
         attempts_count = greatest(task.attempts_count, step.opt_max_attempts,
                                   flow.opt_max_attempts, 1),
         started_at = greatest(least(task.started_at, now()), task.queued_at)
    from pgflow.steps as step
    join pgflow.flows as flow on flow.flow_slug = step.flow_slug
   where step.flow_slug = task.flow_slug and step.step_slug = task.step_slug
     and task.run_id = _give_up.run_id and task.step_slug = _give_up.step_slug
     and task.task_index = _give_up.task_index;
  perform pgflow.fail_task(_give_up.run_id, _give_up.step_slug, _give_up.task_index,
                           _give_up.error_message);
  update pgflowd.attempts as attempt
     set ended_at = now(), outcome = 'stalled', error_type = 'E408',
         error_message = _give_up.error_message
   where attempt.run_id = _give_up.run_id and attempt.step_slug = _give_up.step_slug
     and attempt.task_index = _give_up.task_index and attempt.ended_at is null;
  perform pgflowd._delete_attempts(_give_up.run_id, _give_up.step_slug, _give_up.task_index);
  select run.* into failed from pgflow.runs as run
   where run.run_id = _give_up.run_id and run.status = 'failed';
  if found then
    perform pgflowd._note_end(_give_up.run_id);
    raise notice 'a run has failed, since a task of it was given up'
      using errcode = 'PF011', detail = jsonb_build_object(
        'run', failed.run_id, 'flow', failed.flow_slug,
        'step', _give_up.step_slug, 'error', _give_up.error_message)::text;
  end if;
  return true;
end $$;
