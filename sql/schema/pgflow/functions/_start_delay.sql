-- _start_delay(step): how many seconds after its start the tasks of a step become visible. Queries
-- inline it, so it has no settings of its own.
-- Called by: _create_tasks, _start_tasks, start_flows.   Locks: nothing.
create or replace function pgflow._start_delay(step pgflow.steps)
returns int language sql immutable
return coalesce(step.opt_start_delay, 0);
