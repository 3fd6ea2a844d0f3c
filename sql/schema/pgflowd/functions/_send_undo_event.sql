-- _send_undo_event(run_id): sends the event that says how far the undo of a run is: run:undoing,
-- run:undone or run:undo_failed.
-- Called by: _end_undo, _start_undo.   Locks: nothing.
create or replace function pgflowd._send_undo_event(run_id uuid)
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  run constant pgflowd.runs := (select known from pgflowd.runs as known
                                 where known.run_id = _send_undo_event.run_id);
begin
  perform pgflowd._send_event(run.run_id, 'run:' || run.undo_state, jsonb_build_object(
    'event_type', 'run:' || run.undo_state, 'run_id', run.run_id, 'flow_slug', run.flow_slug,
    'status', run.undo_state));
end $$;
