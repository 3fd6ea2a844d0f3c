-- _began_by_itself(run): whether nobody has asked for this run: a tick of a schedule has started it, or the
-- task of another run, or it undoes one. Queries inline it, so it has no settings of its own.
-- Called by: last_run.   Locks: nothing.
create or replace function pgflowd._began_by_itself(run pgflowd.runs)
returns boolean language sql immutable
return run.undo_of is not null or run.parent_run_id is not null
         or coalesce(run.created_by = 'schedule ' || (run.labels ->> 'schedule'), false);
