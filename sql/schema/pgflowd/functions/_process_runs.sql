-- _process_runs(run_ids): does what is due for these runs: one that has expired ends, or never begins;
-- else a planned one begins, at once or when its singleton key is free (_process_line). A run that was
-- started by hand with the id of a planned one is that run.
-- Called by: _process_due_runs.   Locks: what a start and cancel lock; the caller holds the runs and
-- their keys.
create or replace function pgflowd._process_runs(run_ids uuid[])
returns void language plpgsql set search_path = '' as $$
declare
  expired uuid;
  key text;
  is_done boolean;
  starts record;
begin
  update pgflowd.runs as run set state = 'ended', expired_at = now(),
         due_at = case when run.singleton_key is not null then run.due_at end
   where run.run_id = any (_process_runs.run_ids) and run.state = 'planned'
     and run.expires_at <= now();

  for starts in
    select run.flow_slug, array_agg(run.input order by run.start_at, run.created_at) as inputs,
           array_agg(run.run_id order by run.start_at, run.created_at) as run_ids
      from pgflowd.runs as run
     where run.run_id = any (_process_runs.run_ids) and run.state = 'planned'
       and run.start_at <= now() and run.singleton_key is null
       and not exists (select from pgflow.runs as known where known.run_id = run.run_id)
     group by run.flow_slug order by run.flow_slug
  loop
    perform pgflowd._start_each_run(starts.flow_slug, starts.inputs, starts.run_ids);
  end loop;
  update pgflowd.runs as run set state = 'started', input = null, due_at = run.expires_at
   where run.run_id = any (_process_runs.run_ids) and run.state = 'planned'
     and run.start_at <= now() and run.singleton_key is null;

  for expired in
    select run.run_id from pgflowd.runs as run
      join pgflow.runs as core on core.run_id = run.run_id
     where run.run_id = any (_process_runs.run_ids) and run.state = 'started'
       and run.expires_at <= now() and core.status = 'started' order by run.run_id
  loop
    perform pgflowd.cancel(expired, 'its time is over', 'pgflowd');
    update pgflowd.runs as run set expired_at = now() where run.run_id = expired;
  end loop;
  update pgflowd.runs as run set due_at = null
   where run.run_id = any (_process_runs.run_ids) and run.state = 'started' and run.due_at <= now()
     and run.singleton_key is null;

  for key in
    select distinct run.singleton_key from pgflowd.runs as run
     where run.run_id = any (_process_runs.run_ids) and run.singleton_key is not null order by 1
  loop
    is_done := pgflowd._process_line(key);
    update pgflowd.runs as run
       set due_at = case when not is_done then now() + interval '100 ms'
                         when run.state = 'planned' or run.holds_key then least(
                           case when run.start_at > now() then run.start_at end,
                           case when run.expires_at > now() then run.expires_at end) end
     where run.run_id = any (_process_runs.run_ids) and run.singleton_key = key
       and run.due_at <= now();
  end loop;
end $$;
