-- _is_paused(run_id): whether the run is paused. Queries do not inline it, so that they pay for the
-- look-up only when they need it.
-- Called by: _handle_unstarted, _hold_task, pause, _take_needed.   Locks: nothing.
create or replace function pgflowd._is_paused(run_id uuid)
returns boolean language plpgsql stable set search_path = '', pg_temp as $$
begin
  return exists (select from pgflowd.runs as run
                  where run.run_id = _is_paused.run_id and run.paused_at is not null);
end $$;
