-- mark_worker_stopped(worker_id): records that the worker has stopped.
-- Called by: workers of other runtimes.   Locks: the worker's row.
create or replace function pgflow.mark_worker_stopped(worker_id uuid)
returns void language sql set search_path = '', pg_temp as $$
  update pgflow.workers as worker set stopped_at = clock_timestamp()
   where worker.worker_id = mark_worker_stopped.worker_id;
$$;
