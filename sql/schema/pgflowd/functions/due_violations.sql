-- due_violations(max_rows): returns I16: what has been due for more than a minute, although a sweeper
-- has shown life within five: the oldest waits that are over, runs to be started or ended, and the
-- oldest new signals. And I21: runs that have ended and keep their singleton key, or are in line for one
-- that nobody has, and for which no sweep will come. It looks at a hundred thousand of each.
-- Called by: violations; `pgflowd doctor`.   Locks: nothing.
create or replace function pgflowd.due_violations(max_rows int default 20)
returns table (invariant text, flow_slug text, run_id uuid, step_slug text, task_index int,
               detail text)
language plpgsql stable set search_path = '' set jit = off set enable_sort = off
  set enable_bitmapscan = off as $$
#variable_conflict use_column
begin
  return query
    select 'I21', run.flow_slug, run.run_id, null::text, null::int,
           format('it has ended and keeps the singleton key %L', run.singleton_key)
      from (select one.* from pgflowd.runs as one where one.holds_key limit 100000) as run
     where run.due_at is null
       and not exists (select from pgflow.runs as core
                        where core.run_id = run.run_id and core.status = 'started')
     limit max_rows;
  return query
    select 'I21', run.flow_slug, run.run_id, null::text, null::int,
           format('it waits for the singleton key %L, which no run has', run.singleton_key)
      from (select one.* from pgflowd.runs as one
             where one.state = 'planned' and one.singleton_key is not null limit 100000) as run
     where run.due_at is null
       and not exists (select from pgflowd.runs as holder
                        where holder.singleton_key = run.singleton_key and holder.holds_key)
       and not exists (select from pgflowd.runs as ahead
                        where ahead.singleton_key = run.singleton_key and ahead.state = 'planned'
                          and (ahead.created_at, ahead.run_id) < (run.created_at, run.run_id))
     limit max_rows;
  if not exists (select from pgflowd.sweepers as sweeper
                  where sweeper.sleeps_until > now() - interval '5 minutes') then
    return;
  end if;
  return query
    select 'I16', wait.flow_slug, wait.run_id, wait.step_slug, wait.task_index,
           format('its wait was over %s s ago', floor(extract(epoch from now() - wait.due_at)))
      from pgflowd.waits as wait
     where wait.due_at < now() - interval '1 minute' order by wait.due_at limit max_rows;
  return query
    select 'I16', run.flow_slug, run.run_id, null::text, null::int,
           format('its time to %s came %s s ago',
                  case run.state when 'planned' then 'begin' else 'expire' end,
                  floor(extract(epoch from now() - run.due_at)))
      from pgflowd.runs as run
     where run.due_at < now() - interval '1 minute' order by run.due_at limit max_rows;
  return query
    select 'I16', run.flow_slug, signal.run_id, null::text, null::int,
           format('nobody has looked at signal %L for %s s', signal.name,
                  floor(extract(epoch from now() - signal.sent_at)))
      from (select one.* from pgflowd.signals as one
             where one.is_new order by one.sent_at limit max_rows) as signal
      join pgflow.runs as run on run.run_id = signal.run_id
     where signal.sent_at < now() - interval '1 minute';
end $$;
