-- _is_cancelled(run_id): whether the run was cancelled. Queries do not inline it, so that they pay
-- for the look-up only when they need it.
-- Called by: _cancel, heartbeat, _lock_leased, progress, retry, _with_standings.   Locks: nothing.
create or replace function pgflowd._is_cancelled(run_id uuid)
returns boolean language plpgsql stable set search_path = '', pg_temp as $$
begin
  return exists (select from pgflowd.runs as run
                  where run.run_id = _is_cancelled.run_id and run.cancelled_at is not null);
end $$;
