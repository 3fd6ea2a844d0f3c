-- _cancel_planned(run_id, reason, actor): ends a planned run; returns as cancel does, and null for a run
-- that has begun, or is unknown. PF003 for one that expired. The sweep tells those who wait for it.
-- Called by: _cancel.   Locks: its row in pgflowd.runs.
create or replace function pgflowd._cancel_planned(run_id uuid, reason text, actor text)
returns text language plpgsql set search_path = '', pg_temp as $$
declare
  planned constant pgflowd.runs := pgflowd._lock_planned(_cancel_planned.run_id);
begin
  if planned.run_id is null then
    return null;
  elsif planned.cancelled_at is not null then
    return 'repeated';
  elsif planned.expired_at is not null then
    raise exception 'run % has ended already: it is expired', planned.run_id
      using errcode = 'PF003';
  end if;
  update pgflowd.runs as run
     set state = 'ended', due_at = now(), cancelled_at = now(),
         cancelled_by = _cancel_planned.actor, cancel_reason = _cancel_planned.reason
   where run.run_id = planned.run_id;
  perform pgflowd._notify_due(now());
  return 'cancelled';
end $$;
