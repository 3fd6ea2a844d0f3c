-- _end_undo(undo_run_id): a run that undoes another one has ended: that one is undone if each task is
-- that it was to undo. If meanwhile a result has come of one that it was not to, it is undone once
-- more. Else it has ended now for those who wait for its end. A notice, PF015, says so: its
-- detail is an object with run, flow, status, took_s, and the error of a task that could not be undone.
-- False while somebody else has locked its row in pgflowd.runs; and while a handler of an undo that was
-- cancelled may be at work, so that no other begins beside it.
-- Called by: _process_undos.   Locks: that row, if it is free; the caller holds the run that undoes.
create or replace function pgflowd._end_undo(undo_run_id uuid)
returns boolean language plpgsql set search_path = '', pg_temp as $$
declare
  undone pgflowd.runs;
  failed record;
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
  elsif exists (select from pgflow.runs as run
                 where run.run_id = _end_undo.undo_run_id and run.status = 'failed')
        and pgflowd._may_be_at_work(_end_undo.undo_run_id) then
    perform pgflowd._wake(queue.queue_name)
       from pgflow.runs as run
      cross join lateral pgflowd._queues(run.flow_slug) as queue
      where run.run_id = _end_undo.undo_run_id;
    return false;
  end if;
  select task.step_slug, task.error into failed
    from pgflowd._undo_tasks(_end_undo.undo_run_id) as task
   where task.state <> 'undone' order by task.error nulls last limit 1;
  if failed.step_slug is null
     and pgflowd._undo_plan(undone.run_id, undone.flow_slug, undone.undo_generation + 1) <> '{}' then
    perform pgflowd._want_undo(undone.run_id, undone.flow_slug, undone.undo_by, undone.undo_reason);
    return true;
  end if;
  undone.undo_state := case when failed.step_slug is null then 'undone' else 'undo_failed' end;
  update pgflowd.runs as original set due_at = now(), undo_state = undone.undo_state
   where original.run_id = undone.run_id;
  perform pgflowd._send_undo_event(undone.run_id);
  raise notice 'the undo of a run has ended'
    using errcode = 'PF015', detail = jsonb_build_object(
      'run', undone.run_id, 'flow', undone.flow_slug, 'status', undone.undo_state,
      'took_s', extract(epoch from clock_timestamp() - undone.undo_wanted_at),
      'error', failed.step_slug || ': ' || coalesce(failed.error, 'its undo was not finished'));
  return true;
end $$;
