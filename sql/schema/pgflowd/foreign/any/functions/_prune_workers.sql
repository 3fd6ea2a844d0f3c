-- _prune_workers(before): does nothing on a foreign core, whose own functions look after workers.
-- Called by: _prune_leftovers.   Locks: nothing.
create or replace function pgflowd._prune_workers(before timestamptz)
returns void language sql set search_path = '', pg_temp as $$
  select;
$$;
