-- _wake(queue_name): tell the listeners that this queue deserves a look.
-- For who makes work visible without an insert, which no trigger sees.
-- Called by: release, recoveries, cancel.   Locks: nothing.
create or replace function pgflowd._wake(queue_name text)
returns void language sql set search_path = '' as $$
  select pg_notify('pgflowd', lower(_wake.queue_name));
$$;
