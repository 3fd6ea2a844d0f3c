-- _is_blocked(run): whether the time of a planned run has come, and other runs must end before it
-- begins. Queries inline it, so it has no settings of its own.
-- Called by: _found_runs, reschedule, view run_status.   Locks: nothing.
create or replace function pgflowd._is_blocked(run pgflowd.runs)
returns boolean language sql stable
return run.state = 'planned' and coalesce(run.start_at <= now(), true)
         and (run.singleton_key is not null or run.after_mode is not null or run.start_at is null);
