-- _mark_failed(run_id): this run has failed; perhaps it is undone (pgflowd._mark_failed).
-- Security definer, for callers that may use schema pgflow only.
-- Called by: _complete_runs, _fail_step.   Locks: see there.
create or replace function pgflow._mark_failed(run_id uuid)
returns void language plpgsql security definer set search_path = '', pg_temp as $$
begin
  perform pgflowd._mark_failed(_mark_failed.run_id, false);
end $$;
