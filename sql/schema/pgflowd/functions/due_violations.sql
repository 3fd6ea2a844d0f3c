-- due_violations(max_rows): returns I16: what has been due for more than a minute, although a sweeper
-- has shown life within five: the oldest waits that are over, runs to be started or ended, ends that others
-- wait for, schedules, the oldest new signals, and places of limits that were freed. And I18: runs that wait for the end of one which nobody will tell them.
-- And I21: runs that have ended and keep their singleton key, or are in line for one that nobody has, and
-- for which no sweep will come. It looks at a hundred thousand of each.
-- Called by: violations; `pgflowd doctor`.   Locks: nothing.
create or replace function pgflowd.due_violations(max_rows int default 20)
returns table (invariant text, flow_slug text, run_id uuid, step_slug text, task_index int,
               detail text)
language plpgsql stable set search_path = '', pg_temp set jit = off set enable_sort = off
  set enable_bitmapscan = off as $$
#variable_conflict use_column
begin
  return query
    select 'I21', run.flow_slug, run.run_id, null::text, null::int,
           format('it has ended and keeps the singleton key %L', run.singleton_key)
      from (select one.* from pgflowd.runs as one where one.holds_key limit 100000) as run
     where run.due_at is null and not pgflowd._is_being_undone(run.run_id)
       and not exists (select from pgflow.runs as core
                        where core.run_id = run.run_id and core.status = 'started')
     limit max_rows;
  return query
    select 'I21', run.flow_slug, run.run_id, null::text, null::int,
           format('it waits for the singleton key %L, which no run has', run.singleton_key)
      from (select one.* from pgflowd.runs as one
             where one.state = 'planned' and one.singleton_key is not null
               and one.after_mode is null limit 100000) as run
     where run.due_at is null
       and not exists (select from pgflowd.runs as holder
                        where holder.singleton_key = run.singleton_key and holder.holds_key)
       and not exists (select from pgflowd.runs as ahead
                        where ahead.singleton_key = run.singleton_key and ahead.state = 'planned'
                          and ahead.after_mode is null
                          and (ahead.created_at, ahead.run_id) < (run.created_at, run.run_id))
     limit max_rows;
  return query
    select 'I18', coalesce(run.flow_slug, wait.flow_slug), one.run_id, wait.step_slug, wait.task_index,
           format('it waits for run %s, whose end nobody will tell', one.awaited)
      from (select other.* from pgflowd.awaits as other where other.due_at is null limit 100000) as one
      left join pgflowd.runs as run
        on run.run_id = one.run_id and run.state = 'planned' and one.step_slug = ''
      left join pgflowd.waits as wait
        on wait.run_id = one.run_id and wait.step_slug = one.step_slug
       and wait.task_index = one.task_index and wait.kind = 'runs'
     where (run.run_id is not null or wait.run_id is not null)
       and not pgflowd._is_being_undone(one.awaited)
       and not exists (select from pgflowd.runs as ours
                        where ours.run_id = one.awaited
                          and (ours.state = 'planned' or ours.due_at is not null))
       and not exists (select from pgflow.runs as core
                        where core.run_id = one.awaited and core.status = 'started'
                          and to_jsonb(core) -> 'is_watched' = 'true')
     limit max_rows;
  return query
    select 'I18', run.flow_slug, run.run_id, null::text, null::int,
           'it begins after other runs, waits for none, and is not due'
      from (select one.* from pgflowd.runs as one
             where one.state = 'planned' order by one.created_at desc limit 100000) as run
     where run.after_mode is not null and run.due_at is null
       and not exists (select from pgflowd.awaits as one where one.run_id = run.run_id)
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
    select 'I16', null::text, slot.run_id, slot.step_slug, slot.task_index,
           format('its place of limit %L has been free for %s s', slot.limit_key,
                  floor(extract(epoch from now() - slot.free_at)))
      from pgflowd.slots as slot
     where slot.free_at < now() - interval '1 minute' order by slot.free_at limit max_rows;
  return query
    select 'I16', run.flow_slug, run.run_id, null::text, null::int,
           format('its time to %s came %s s ago',
                  case run.state when 'planned' then 'begin' else 'expire' end,
                  floor(extract(epoch from now() - run.due_at)))
      from pgflowd.runs as run
     where run.due_at < now() - interval '1 minute' order by run.due_at limit max_rows;
  return query
    select 'I16', schedule.flow_slug, null::uuid, null::text, null::int,
           format('its schedule %L was due %s s ago', schedule.name,
                  floor(extract(epoch from now() - schedule.due_at)))
      from pgflowd.schedules as schedule
     where schedule.due_at < now() - interval '1 minute' order by schedule.due_at limit max_rows;
  return query
    select 'I16', coalesce(planned.flow_slug, run.flow_slug), one.run_id, nullif(one.step_slug, ''),
           nullif(one.task_index, -1),
           format('it is to be told of run %s, for %s s', one.awaited,
                  floor(extract(epoch from now() - one.due_at)))
      from (select other.* from pgflowd.awaits as other
             where other.due_at < now() - interval '1 minute' order by other.due_at limit max_rows) as one
      left join pgflowd.runs as planned on planned.run_id = one.run_id
      left join pgflow.runs as run on run.run_id = one.run_id;
  return query
    select 'I16', run.flow_slug, signal.run_id, null::text, null::int,
           format('nobody has looked at signal %L for %s s', signal.name,
                  floor(extract(epoch from now() - signal.sent_at)))
      from (select one.* from pgflowd.signals as one
             where one.is_new order by one.sent_at limit max_rows) as signal
      join pgflow.runs as run on run.run_id = signal.run_id
     where signal.sent_at < now() - interval '1 minute';
end $$;
