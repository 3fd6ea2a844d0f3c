-- _want_undo(run_id, flow_slug, actor, reason): the sweep is to undo this run, which has ended; another
-- time, if that was done before. `actor` is null where nobody asked for the undo itself.
-- Called by: cancel, _end_undo, _keep_returned, _mark_failed, undo.   Locks: its row in pgflowd.runs; the caller holds the run, or that row.
create or replace function pgflowd._want_undo(
  run_id uuid, flow_slug text, actor text, reason text)
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  insert into pgflowd.runs as known (run_id, flow_slug, due_at, undo_state, undo_generation,
                                     undo_wanted_at, undo_by, undo_reason)
  values (_want_undo.run_id, _want_undo.flow_slug, now(), 'wanted', 1, now(), _want_undo.actor,
          _want_undo.reason)
  on conflict on constraint runs_pkey do update
     set due_at = now(), undo_state = 'wanted',
         undo_generation = coalesce(known.undo_generation, 0) + 1, undo_wanted_at = now(),
         undo_by = excluded.undo_by, undo_reason = excluded.undo_reason;
  perform pgflowd._notify_due(now());
end $$;
