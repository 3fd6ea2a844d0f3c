-- _task_name(run_id, step_slug, task_index): returns what error messages call a task.
-- Called by: checkpoint_load, checkpoint_save, _close_attempts, _end_due_waits, _hold_task,
-- _lock_leased, _lock_stalled, _postpone_lease, task_extend, task_wake.   Locks: nothing.
create or replace function pgflowd._task_name(run_id uuid, step_slug text, task_index int)
returns text language sql immutable set search_path = '', pg_temp as $$
  select 'task ' || coalesce(_task_name.step_slug, '?')
         || '#' || coalesce(_task_name.task_index::text, '?')
         || ' of run ' || coalesce(_task_name.run_id::text, '?');
$$;
