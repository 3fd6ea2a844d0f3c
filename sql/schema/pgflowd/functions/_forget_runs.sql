-- _forget_runs(run_ids): deletes the signals of runs that are being deleted, and what pgflowd.runs has
-- of them, which no foreign key does: both may be there before the run is.
-- Called by: pgflow.delete_flow_and_data, pgflow.prune_data_older_than.   Locks: these rows.
create or replace function pgflowd._forget_runs(run_ids uuid[])
returns void language plpgsql set search_path = '' as $$
begin
  delete from pgflowd.signals as signal where signal.run_id = any (_forget_runs.run_ids);
  delete from pgflowd.runs as run where run.run_id = any (_forget_runs.run_ids);
end $$;
