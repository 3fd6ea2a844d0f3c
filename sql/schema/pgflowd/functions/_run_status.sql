-- _run_status(status, is_cancelled, open_tasks, waits): returns what a run with this status in the core
-- is called here: a failed one that was cancelled is `cancelled`, and one whose open tasks all wait
-- is `waiting`. Queries inline it, so it has no settings of its own.
-- Called by: _list_runs, view run_status.   Locks: nothing.
create or replace function pgflowd._run_status(
  status text, is_cancelled boolean, open_tasks bigint, waits bigint)
returns text language sql immutable as $$
  select case when status = 'failed' and is_cancelled then 'cancelled'
              when status = 'started' and waits > 0 and waits >= open_tasks then 'waiting'
              else status end;
$$;
