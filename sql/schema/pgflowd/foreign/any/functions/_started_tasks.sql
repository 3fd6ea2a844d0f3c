-- _started_tasks(worker_id): returns the keys of the started tasks of one worker, or (null) of all.
-- Upstream keeps indexes on started tasks, which serve both.
-- Called by: _daemon_work, overview_counts, _lock_stalled_leases, stalled_tasks, _sweep_unleased, view flow_status, view
-- worker_status.   Locks: nothing.
create or replace function pgflowd._started_tasks(worker_id uuid)
returns table (run_id uuid, step_slug text, task_index int)
language plpgsql stable rows 1 set search_path = '', pg_temp as $$
#variable_conflict use_column
begin
  if _started_tasks.worker_id is null then
    return query
      select task.run_id, task.step_slug, task.task_index
        from pgflow.step_tasks as task where task.status = 'started';
  else
    return query
      select task.run_id, task.step_slug, task.task_index
        from pgflow.step_tasks as task
       where task.status = 'started' and task.last_worker_id = _started_tasks.worker_id;
  end if;
end $$;
