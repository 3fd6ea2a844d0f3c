-- _is_large(output): whether an output is so large that it must not go through an aggregate of
-- jsonb: these copy each string by a function that measures all strings behind it, so their cost
-- is the number of strings times their bytes, and nothing can interrupt it. What is smaller is
-- done in no time, and costs less than by any other way. Queries inline it.
-- Called by: _complete_runs, _deps_output, _send_run_events, _send_step_events,
-- get_run_with_states.   Locks: nothing.
create or replace function pgflow._is_large(output jsonb)
returns boolean language sql stable
return coalesce(pg_column_size(output), 0) > 2000;
