-- maybe_complete_run(run_id): completes the run if no step of it is left. Safe at any time.
-- Called by: pgflowd._advance; workers of other runtimes, operators.   Locks: the run.
create or replace function pgflow.maybe_complete_run(run_id uuid)
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  perform from pgflow.runs as run
    where run.run_id = maybe_complete_run.run_id for no key update;
  perform pgflow._complete_runs(array[maybe_complete_run.run_id], array[0]);
end $$;
