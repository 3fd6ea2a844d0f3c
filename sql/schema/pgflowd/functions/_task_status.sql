-- _task_status(status, is_waiting, held_until, moment): returns what a task with this status in the core
-- is called here. `held_until` is the end of the lease of a started task, and for a queued one when its
-- message becomes visible. Queries inline it, so it has no settings of its own.
-- Called by: list_tasks, view task_status.   Locks: nothing.
create or replace function pgflowd._task_status(
  status text, is_waiting boolean, held_until timestamptz, moment timestamptz)
returns text language sql immutable as $$
  select case when status = 'started' and held_until < moment then 'lapsed'
              when status = 'started' then 'leased'
              when status <> 'queued' then status
              when is_waiting then 'waiting'
              when held_until > moment then 'delayed'
              else 'ready' end;
$$;
