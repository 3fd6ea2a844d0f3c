-- _started_tasks(worker_id): returns the keys of the started tasks of one worker, or (null) of all. Our
-- core has no index on what changes, so they are found through the queues: the worker's, or all.
-- Called by: _daemon_work, overview_counts, _lock_stalled_leases, pgflow._prune_workers, stalled_tasks,
-- _sweep_unleased, view flow_status, view worker_status.   Locks: nothing.
create or replace function pgflowd._started_tasks(worker_id uuid)
returns table (run_id uuid, step_slug text, task_index int)
language plpgsql stable rows 1 set search_path = '', pg_temp as $$
#variable_conflict use_column
begin
  return query
    select task.run_id, task.step_slug, task.task_index
      from pgflow.flows as flow
      left join pgflow.workers as worker on worker.worker_id = _started_tasks.worker_id
     cross join lateral pgflow._started_tasks(flow.flow_slug) as task
     where (worker.worker_id is null
            or pgflow._queue_name(flow.flow_slug) = lower(worker.queue_name collate "C"))
       and (_started_tasks.worker_id is null or task.last_worker_id = _started_tasks.worker_id);
end $$;
