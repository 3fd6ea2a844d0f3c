-- _task_status(status, wait_kind, held_until, moment): returns what a task with this status in the core
-- is called here. `wait_kind`: of what it waits for, null if for nothing. `held_until` is the end of the
-- lease of a started task, and for a queued one when its message becomes visible. Queries inline it, so
-- it has no settings of its own.
-- Called by: list_inbox, list_tasks, view task_status.   Locks: nothing.
create or replace function pgflowd._task_status(
  status text, wait_kind text, held_until timestamptz, moment timestamptz)
returns text language sql immutable
return case when status = 'started' and held_until < moment then 'lapsed'
              when status = 'started' then 'leased'
              when status <> 'queued' then status
              when wait_kind in ('paused', 'quarantined') then wait_kind
              when wait_kind is not null then 'waiting'
              when held_until > moment then 'delayed'
              else 'ready' end;
