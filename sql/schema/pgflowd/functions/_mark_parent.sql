-- _mark_parent(run_id): the sweep is to look at a run that was cancelled, if it has children. A
-- transaction that reads by an old snapshot may not see them, so for it every run has some.
-- Called by: _cancel.   Locks: its row in pgflowd.runs; the caller holds the run.
create or replace function pgflowd._mark_parent(run_id uuid)
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  update pgflowd.runs as known set due_at = now()
   where known.run_id = _mark_parent.run_id
     and (current_setting('transaction_isolation') <> 'read committed'
          or exists (select from pgflowd.runs as child
                      where child.parent_run_id = _mark_parent.run_id));
  if found then
    perform pgflowd._notify_due(now());
  end if;
end $$;
