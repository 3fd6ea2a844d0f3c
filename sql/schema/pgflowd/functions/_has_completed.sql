-- _has_completed(run_id): whether a run has completed; null while it is planned, open or being undone.
-- An unknown run was deleted, and has not; nor has one that was undone.
-- Called by: _end_awaits, _watch_awaited.   Locks: nothing.
create or replace function pgflowd._has_completed(run_id uuid)
returns boolean language sql stable set search_path = '', pg_temp as $$
  select case when exists (select from pgflow.runs as run
                            where run.run_id = _has_completed.run_id and run.status = 'started')
                or exists (select from pgflowd.runs as run
                            where run.run_id = _has_completed.run_id
                              and (run.state = 'planned' or run.undo_state in ('wanted', 'undoing')))
                then null
              else exists (select from pgflow.runs as run
                            where run.run_id = _has_completed.run_id and run.status = 'completed')
                   and not exists (select from pgflowd.runs as run
                                    where run.run_id = _has_completed.run_id
                                      and run.undo_state is not null) end
$$;
