-- register_worker(p_worker_id, p_queue_name, p_function_name): inserts the worker's row; for a
-- known worker it is a heartbeat.
-- Called by: workers of other runtimes.   Locks: the worker's row.
create or replace function pgflow.register_worker(
  p_worker_id uuid, p_queue_name text, p_function_name text)
returns void language sql set search_path = '', pg_temp as $$
  insert into pgflow.workers (worker_id, queue_name, function_name)
  values (p_worker_id, p_queue_name, p_function_name)
      on conflict (worker_id) do update set last_heartbeat_at = clock_timestamp();
$$;
