-- _is_being_undone(run_id): whether an undo of this run is wanted, or under way.
-- Called by: due_violations, _process_line, pgflow.prune_data_older_than.   Locks: nothing.
create or replace function pgflowd._is_being_undone(run_id uuid)
returns boolean language plpgsql stable set search_path = '', pg_temp as $$
begin
  return exists (select from pgflowd.runs as run
                  where run.run_id = _is_being_undone.run_id
                    and run.undo_state in ('wanted', 'undoing'));
end $$;
