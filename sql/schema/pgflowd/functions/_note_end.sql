-- _note_end(run_id): no report has ended this run, so its spans are exported from ended_runs, where there
-- are traces.
-- Called by: _cancel, _give_up.   Locks: its row of ended_runs.
create or replace function pgflowd._note_end(run_id uuid)
returns void language sql set search_path = '', pg_temp as $$
  insert into pgflowd.ended_runs (run_id)
  select _note_end.run_id from pgflowd.traces as cursor where cursor.seen_at > now() - interval '1 day'
  on conflict do nothing;
$$;
