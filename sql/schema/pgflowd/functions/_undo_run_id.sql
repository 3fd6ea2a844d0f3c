-- _undo_run_id(run_id, generation): the id of the run that undoes this one, for the first time or again.
-- No key of a start gives the same one.
-- Called by: _end_undo, _forget_runs, run_undos, _start_undo, _undo_plan, _undo_violations, view
-- run_status.   Locks: nothing.
create or replace function pgflowd._undo_run_id(run_id uuid, generation int)
returns uuid language sql immutable strict set search_path = '', pg_temp as $$
  select pgflowd._run_id_of_key('', _undo_run_id.run_id::text || ' ' || _undo_run_id.generation);
$$;
