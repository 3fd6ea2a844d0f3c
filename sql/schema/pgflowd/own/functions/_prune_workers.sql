-- _prune_workers(before): deletes workers without a heartbeat since then that no task names. To find them all
-- tasks are read, and once more for each that goes; so of a large table only people have it done, by
-- prune_data_older_than.
-- Called by: _prune_leftovers.   Locks: see pgflow._prune_workers.
create or replace function pgflowd._prune_workers(before timestamptz)
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  if pg_relation_size('pgflow.step_tasks') < 200000000 then
    perform pgflow._prune_workers(_prune_workers.before, 10000);
  end if;
end $$;
