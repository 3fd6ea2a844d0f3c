-- _forget_runs(run_ids): deletes the signals of runs that are being deleted, which no foreign key does:
-- a signal may be sent to a run before it is there.
-- Called by: pgflow.delete_flow_and_data, pgflow.prune_data_older_than.   Locks: the signals.
create or replace function pgflowd._forget_runs(run_ids uuid[])
returns void language plpgsql set search_path = '' as $$
begin
  delete from pgflowd.signals as signal where signal.run_id = any (_forget_runs.run_ids);
end $$;
