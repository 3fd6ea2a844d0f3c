-- _lock_planned(run_id): locks a run that has no row in pgflow.runs, and returns its row: planned, or
-- ended. A null one if there is none, or if the run has begun meanwhile; then nothing stays locked, as
-- the run has to be locked first.
-- Called by: _cancel_planned, reschedule.   Locks: its row in pgflowd.runs.
create or replace function pgflowd._lock_planned(run_id uuid)
returns pgflowd.runs language plpgsql set search_path = '', pg_temp as $$
declare
  locked pgflowd.runs;
begin
  select one.* into locked from pgflowd.runs as one
   where one.run_id = _lock_planned.run_id for no key update;
  if locked.state = 'started' then
    raise exception 'it has begun' using errcode = 'PF000';
  end if;
  return locked;
exception when sqlstate 'PF000' then  -- which lets the lock go
  return null;
end $$;
