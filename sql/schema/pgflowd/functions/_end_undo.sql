-- _end_undo(undo_run_id): a run that undoes another one has ended: that one is undone if each task is that it
-- was to undo. Now it has ended for those who wait for its end. False while somebody else has locked its row in
-- pgflowd.runs.
-- Called by: _process_undos.   Locks: that row, if it is free; the caller holds the run that undoes.
create or replace function pgflowd._end_undo(undo_run_id uuid)
returns boolean language plpgsql set search_path = '' as $$
declare
  undone pgflowd.runs;
begin
  select original.* into undone
    from pgflowd.runs as ours
    join pgflowd.runs as original on original.run_id = ours.undo_of
   where ours.run_id = _end_undo.undo_run_id and original.undo_state = 'undoing'
     and pgflowd._undo_run_id(original.run_id, original.undo_generation) = ours.run_id;
  if not found then
    return true;
  end if;
  perform from pgflowd.runs as original where original.run_id = undone.run_id for update skip locked;
  if not found then
    return false;
  end if;
  update pgflowd.runs as original
     set due_at = now(),
         undo_state = case when exists (select from pgflowd._undo_tasks(_end_undo.undo_run_id) as task
                                         where task.state <> 'undone')
                           then 'undo_failed' else 'undone' end
   where original.run_id = undone.run_id;
  perform pgflowd._send_undo_event(undone.run_id);
  return true;
end $$;
