-- _process_runs(run_ids): does what is due for these runs: one that has expired ends, or never begins;
-- else a planned one begins, unless it waits for others still, at once or when its singleton key is free
-- (_process_line); one that is to be undone is; who waits for one that has ended is to be told, and the
-- children of one that was cancelled, or is undone, are cancelled. A run that was started by hand with
-- the id of a planned one is that run. It may sort again what process_due must not: else all that is
-- planned is read in its order.
-- Called by: _process_due_runs.   Locks: what a start and _cancel lock; the caller holds the runs and
-- their keys.
create or replace function pgflowd._process_runs(run_ids uuid[])
returns void language plpgsql set search_path = '', pg_temp set jit = off set enable_sort = on as $$
declare
  ready uuid[];
  awaited uuid[];
  expired uuid;
  key text;
  again uuid[] := '{}';
  starts record;
begin
  update pgflowd.runs as run set state = 'ended', expired_at = now()
   where run.run_id = any (_process_runs.run_ids) and run.state = 'planned'
     and run.expires_at <= now();

  ready := array(
    select run.run_id from pgflowd.runs as run
     where run.run_id = any (_process_runs.run_ids) and run.state = 'planned'
       and coalesce(run.start_at <= now(), true) and run.after_mode is null
       and run.singleton_key is null);
  for starts in
    select run.flow_slug, array_agg(run.input order by run.start_at, run.created_at) as inputs,
           array_agg(run.run_id order by run.start_at, run.created_at) as run_ids
      from pgflowd.runs as run
     where run.run_id = any (ready)
       and not exists (select from pgflow.runs as known where known.run_id = run.run_id)
     group by run.flow_slug order by run.flow_slug
  loop
    perform from pgflow.start_flows(starts.flow_slug, starts.inputs, starts.run_ids);
  end loop;
  update pgflowd.runs as run set state = 'started', input = null, due_at = run.expires_at
   where run.run_id = any (ready);
  awaited := array(select one.run_id from unnest(ready) as one (run_id)
                    where exists (select from pgflowd.awaits as other
                                   where other.awaited = one.run_id));
  perform pgflowd._watch_runs(awaited) where awaited <> '{}';

  for expired in
    select run.run_id from pgflowd.runs as run
      join pgflow.runs as core on core.run_id = run.run_id
     where run.run_id = any (_process_runs.run_ids) and run.state = 'started'
       and run.expires_at <= now() and core.status = 'started' order by run.run_id
  loop
    perform pgflowd._cancel(expired, 'its time is over', 'pgflowd');
    update pgflowd.runs as run set expired_at = now() where run.run_id = expired;
  end loop;
  again := pgflowd._process_undos(_process_runs.run_ids);

  for key in
    select distinct run.singleton_key from pgflowd.runs as run
     where run.run_id = any (_process_runs.run_ids) and run.singleton_key is not null order by 1
  loop
    if not pgflowd._process_line(key) then
      again := again || array(select run.run_id from pgflowd.runs as run
                               where run.run_id = any (_process_runs.run_ids)
                                 and run.singleton_key = key);
    end if;
  end loop;
  again := again || pgflowd._end_awaits(_process_runs.run_ids);
  update pgflowd.runs as run
     set due_at = case when run.run_id = any (again) or run.undo_state = 'wanted'  -- one that was replaced above
                       then now() + interval '100 ms'
                       when run.state = 'planned' or run.holds_key then least(
                         case when run.start_at > now() then run.start_at end,
                         case when run.expires_at > now() then run.expires_at end) end
   where run.run_id = any (_process_runs.run_ids) and run.due_at <= now();

  -- last: a child may be one of these runs, and has to be due after its end
  again := pgflowd._cancel_children(_process_runs.run_ids);
  update pgflowd.runs as run set due_at = now() + interval '100 ms' where run.run_id = any (again);
end $$;
