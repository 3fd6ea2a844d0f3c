-- _mark_ended(run_ids): these watched runs have ended in this transaction, so they are due: what that
-- means to other runs the sweep does, in a transaction of its own.
-- Called by: _cancel, pgflow._mark_ended.
-- Locks: their rows in pgflowd.runs; the caller holds the runs.
create or replace function pgflowd._mark_ended(run_ids uuid[])
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  update pgflowd.runs as run set due_at = now() where run.run_id = any (_mark_ended.run_ids);
  perform pgflowd._notify_due(now());
end $$;
