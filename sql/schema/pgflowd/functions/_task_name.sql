-- _task_name(run_id, step_slug, task_index): returns what error messages call a task.
-- Called by: _close_attempts, _lock_stalled.   Locks: nothing.
create or replace function pgflowd._task_name(run_id uuid, step_slug text, task_index int)
returns text language sql immutable set search_path = '' as $$
  select 'task ' || coalesce(_task_name.step_slug, '?')
         || '#' || coalesce(_task_name.task_index::text, '?')
         || ' of run ' || coalesce(_task_name.run_id::text, '?');
$$;
