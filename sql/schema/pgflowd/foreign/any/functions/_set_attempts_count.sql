-- _set_attempts_count(task, attempts): sets a task's number of attempts.
-- Called by: _fail_reported.   Locks: nothing new; the caller holds the task.
create or replace function pgflowd._set_attempts_count(task pgflow.step_tasks, attempts int)
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  update pgflow.step_tasks as known set attempts_count = _set_attempts_count.attempts
   where known.run_id = task.run_id and known.step_slug = task.step_slug
     and known.task_index = task.task_index;
end $$;
