-- _watch_runs(run_ids): from now on these runs are due when they end (_mark_ended); those that have
-- ended already are due at once. Each gets a row in pgflowd.runs for that.
-- Called by: _begin_first, _process_runs, _start, _start_undo, _watch_awaited.   Locks: the
-- runs, their rows in pgflowd.runs.
create or replace function pgflowd._watch_runs(run_ids uuid[])
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  update pgflow.runs as run set is_watched = true
   where run.run_id = any (_watch_runs.run_ids) and not run.is_watched;
  insert into pgflowd.runs as ours (run_id, flow_slug, due_at)
  select run.run_id, run.flow_slug, case when run.status <> 'started' then now() end
    from pgflow.runs as run
   where run.run_id = any (_watch_runs.run_ids)
  on conflict on constraint runs_pkey do update
     set due_at = excluded.due_at where excluded.due_at is not null;
  if exists (select from pgflow.runs as run
              where run.run_id = any (_watch_runs.run_ids) and run.status <> 'started') then
    perform pgflowd._notify_due(now());
  end if;
end $$;
