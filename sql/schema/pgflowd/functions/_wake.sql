-- _wake(queue_name): notifies the listeners of this queue.
-- For functions that make work visible without an insert, which no trigger sees.
-- Called by: release, recoveries, cancel.   Locks: nothing.
create or replace function pgflowd._wake(queue_name text)
returns void language sql set search_path = '' as $$
  select pg_notify('pgflowd', lower(_wake.queue_name));
$$;
