-- _keep_worker(worker_id): keeps a worker's row from being deleted while this transaction lasts. False
-- if it is being deleted at this moment.
-- Called by: claim.   Locks: the worker's row, skipping it if it is locked.
create or replace function pgflowd._keep_worker(worker_id uuid)
returns boolean language plpgsql set search_path = '', pg_temp as $$
begin
  perform from pgflow.workers as worker where worker.worker_id = _keep_worker.worker_id
    for key share skip locked;
  return found;
end $$;
