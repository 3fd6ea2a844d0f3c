-- _is_leased(run_id, step_slug, task_index): whether an open attempt holds this started task.
-- Called by: _sweep_unleased, _sweep_unleased_task.   Locks: nothing.
create or replace function pgflowd._is_leased(run_id uuid, step_slug text, task_index int)
returns boolean language plpgsql stable set search_path = '', pg_temp as $$
begin
  return exists (
    select from pgflow.step_tasks as task
      join pgflowd.attempts as attempt
        on attempt.run_id = task.run_id and attempt.step_slug = task.step_slug
       and attempt.task_index = task.task_index and attempt.ended_at is null
       and attempt.attempt = task.attempts_count
       and attempt.worker_id = coalesce(task.last_worker_id, attempt.worker_id)
     where task.run_id = _is_leased.run_id and task.step_slug = _is_leased.step_slug
       and task.task_index = _is_leased.task_index);
end $$;
