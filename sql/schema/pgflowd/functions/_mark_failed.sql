-- _mark_failed(run_id, by_cancel): a run has failed, or was cancelled, in this transaction: if its flow
-- has undos, and says so of such runs, it is to be undone.
-- Called by: _cancel, pgflow._mark_failed.
-- Locks: its row in pgflowd.runs; the caller holds the run.
create or replace function pgflowd._mark_failed(run_id uuid, by_cancel boolean)
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  flow constant text := (select run.flow_slug from pgflow.runs as run
                          where run.run_id = _mark_failed.run_id);
begin
  if not pgflowd._has_undo(flow) then
    return;
  end if;
  if (select case when by_cancel then coalesce(min(option.on_cancel), 'keep')
                  else coalesce(min(option.on_failure), 'undo') end
        from pgflowd.flow_options as option where option.flow_slug = flow) = 'undo' then
    perform pgflowd._want_undo(_mark_failed.run_id, flow, null, null);
  end if;
end $$;
