-- _mark_ended(run_ids): marks that these watched runs have ended (pgflowd._mark_ended).
-- Security definer, for callers that may use schema pgflow only.
-- Called by: _complete_runs, _fail_step.   Locks: see there.
create or replace function pgflow._mark_ended(run_ids uuid[])
returns void language plpgsql security definer set search_path = '', pg_temp as $$
begin
  perform pgflowd._mark_ended(_mark_ended.run_ids);
end $$;
