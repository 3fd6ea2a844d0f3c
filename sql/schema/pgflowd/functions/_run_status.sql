-- _run_status(status, is_cancelled, open_tasks, waits, is_planned, is_expired, is_blocked, is_paused,
-- is_quarantined, undo_state): returns what a run with this status in the core is called here. One that
-- is to be undone is `undoing`, then `undone` or `undo_failed`. A failed one that was cancelled is
-- `cancelled`, or `expired` if its time was over; an open one is `paused`, or `waiting` if all its open
-- tasks wait, `quarantined` if one of these does until somebody decides about it. One that the core does
-- not have (null) is `scheduled`, `blocked` if other runs must end first, or was cancelled or expired
-- before it began. Queries inline it, so it has no settings of its own.
-- Called by: _found_runs, view run_status.   Locks: nothing.
create or replace function pgflowd._run_status(
  status text, is_cancelled boolean, open_tasks bigint, waits bigint,
  is_planned boolean default false, is_expired boolean default false,
  is_blocked boolean default false, is_paused boolean default false,
  is_quarantined boolean default false, undo_state text default null)
returns text language sql immutable
return case when undo_state = 'wanted' then 'undoing'
              when undo_state is not null then undo_state
              when status is null and is_planned and is_blocked then 'blocked'
              when status is null and is_planned then 'scheduled'
              when coalesce(status, 'failed') = 'failed' and is_expired then 'expired'
              when coalesce(status, 'failed') = 'failed' and is_cancelled then 'cancelled'
              when status = 'started' and is_paused then 'paused'
              when status = 'started' and waits > 0 and waits >= open_tasks
                then case when is_quarantined then 'quarantined' else 'waiting' end
              else status end;
