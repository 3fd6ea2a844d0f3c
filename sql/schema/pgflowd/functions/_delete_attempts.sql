-- _delete_attempts(run_id, step_slug, task_index): with history `off`, deletes the attempts of a
-- task that has ended, except late results and those that an undo may need. The caller holds the lock
-- of the task.
-- Called by: _give_up.   Locks: attempts.
create or replace function pgflowd._delete_attempts(run_id uuid, step_slug text, task_index int)
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  if pgflowd.setting('history') <> '"off"' then
    return;
  end if;
  delete from pgflowd.attempts as attempt
   using pgflow.step_tasks as task
   where attempt.run_id = _delete_attempts.run_id and attempt.step_slug = _delete_attempts.step_slug
     and attempt.task_index = _delete_attempts.task_index
     and attempt.outcome is distinct from 'late'
     and (attempt.output is null
          or not pgflowd._step_has_undo(_delete_attempts.run_id, _delete_attempts.step_slug))
     and task.run_id = attempt.run_id and task.step_slug = attempt.step_slug
     and task.task_index = attempt.task_index and task.status not in ('queued', 'started');
end $$;
