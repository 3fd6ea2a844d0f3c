-- _lock_leased(run_id, step_slug, task_index, token): locks a task whose live lease has this token.
-- False, without waiting, if another transaction has it locked. PF001 when the token holds no live
-- lease, PF002 for an unknown task.
-- Called by: checkpoint_drop, checkpoint_save, start_child.   Locks: the task, unless it is locked.
create or replace function pgflowd._lock_leased(
  run_id uuid, step_slug text, task_index int, token bigint)
returns boolean language plpgsql set search_path = '', pg_temp as $$
declare
  standing text;
begin
  perform from pgflow.step_tasks as task
    where task.run_id = _lock_leased.run_id and task.step_slug = _lock_leased.step_slug
      and task.task_index = _lock_leased.task_index for no key update skip locked;
  if not found then
    perform from pgflow.step_tasks as task
      where task.run_id = _lock_leased.run_id and task.step_slug = _lock_leased.step_slug
        and task.task_index = _lock_leased.task_index;
    if not found then
      raise exception 'there is no %', pgflowd._task_name(
        _lock_leased.run_id, _lock_leased.step_slug, _lock_leased.task_index)
        using errcode = 'PF002';
    end if;
    return false;
  end if;
  select pgflowd._lease_standing(task.*::pgflow.step_tasks, attempt.*, run.status, state.status,
                                 pgflowd._is_cancelled(run.run_id))
    into standing
    from pgflow.step_tasks as task
    join pgflow.runs as run on run.run_id = task.run_id
    join pgflow.step_states as state
      on state.run_id = task.run_id and state.step_slug = task.step_slug
    join pgflowd.attempts as attempt
      on attempt.run_id = task.run_id and attempt.step_slug = task.step_slug
     and attempt.task_index = task.task_index
   where task.run_id = _lock_leased.run_id and task.step_slug = _lock_leased.step_slug
     and task.task_index = _lock_leased.task_index and attempt.token = _lock_leased.token;
  if standing is distinct from 'live' then
    raise exception 'token % holds no live lease on %', coalesce(_lock_leased.token::text, 'null'),
      pgflowd._task_name(_lock_leased.run_id, _lock_leased.step_slug, _lock_leased.task_index)
      using errcode = 'PF001', hint = 'the task was claimed, reported or retried since';
  end if;
  return true;
end $$;
