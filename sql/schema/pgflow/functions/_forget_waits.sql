-- _forget_waits(run_id): deletes the waits of a run in what has ended (pgflowd._forget_waits).
-- Security definer, for callers that may use schema pgflow only.
-- Called by: _close_tasks.   Locks: the waits; the caller holds the run.
create or replace function pgflow._forget_waits(run_id uuid)
returns void language plpgsql security definer set search_path = '', pg_temp as $$
begin
  perform pgflowd._forget_waits(array[_forget_waits.run_id]);
end $$;
