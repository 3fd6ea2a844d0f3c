-- _moment(): the same as pgflowd._moment, for callers that may use schema pgflow only. Callers' queries
-- inline it.
-- Called by: cascade_complete_taskless_steps, _complete_maps, _complete_runs, _complete_tasks,
-- _send_tasks, _skip_steps, _start_steps.
-- Locks: nothing.
create or replace function pgflow._moment()
returns timestamptz language sql stable
return coalesce(nullif(current_setting('pgflowd.moment', true), '')::timestamptz, now());
