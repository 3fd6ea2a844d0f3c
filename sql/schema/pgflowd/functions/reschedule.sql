-- reschedule(run_id, start_at, expires_at, reason, actor, after, after_mode, singleton_key, after_keys): lets
-- a planned run begin at another time, after other runs than before (none: `{}`), or with another
-- singleton key (none: an empty text), with which it waits in line; or any open run expire at another time.
-- Null leaves it as it is. Returns the status as start does. PF002 for an unknown run, PF003 for one that
-- has ended, or that has begun and is to begin otherwise; PF007 for a run to wait for that is unknown or
-- waits for this one; PF009 for what cannot be. Security definer, so that a role which may touch no table can change
-- what it started.
-- Called by: clients, commands, applications.
-- Locks: the run, its row in pgflowd.runs; that of the next in line for its old key, if it is free.
create or replace function pgflowd.reschedule(
  run_id uuid, start_at timestamptz default null, expires_at timestamptz default null,
  reason text default null, actor text default null, after uuid[] default null,
  after_mode text default null, singleton_key text default null, after_keys text[] default null)
returns text language plpgsql security definer set search_path = '', pg_temp as $$
#variable_conflict use_column
declare
  planned pgflowd.runs;
  run record;
  before pgflowd.runs;
begin
  select known.flow_slug, known.status into run from pgflow.runs as known
   where known.run_id = reschedule.run_id for no key update;
  if not found then
    planned := pgflowd._lock_planned(reschedule.run_id);
    if planned.run_id is null then
      select known.flow_slug, known.status into run from pgflow.runs as known
       where known.run_id = reschedule.run_id for no key update;
      if not found then
        raise exception 'there is no run %', reschedule.run_id using errcode = 'PF002';
      end if;
    end if;
  end if;

  perform pgflowd._check_reserved(null, null, reschedule.singleton_key);
  if planned.state = 'ended' or run.status <> 'started' then
    raise exception 'run % has ended already', reschedule.run_id using errcode = 'PF003';
  elsif planned.state = 'planned' then
    before := planned;
    planned.start_at := coalesce(reschedule.start_at, planned.start_at);
    planned.expires_at := coalesce(reschedule.expires_at, planned.expires_at);
    planned.singleton_key := nullif(coalesce(reschedule.singleton_key, planned.singleton_key), '');
    if reschedule.after_keys is not null then
      reschedule.after := reschedule.after || pgflowd._runs_of_keys(
        pgflowd._name_of(planned.flow_slug), reschedule.after_keys);
    end if;
    if coalesce(cardinality(reschedule.after) > 0, planned.after_mode is not null) then
      planned.after_mode := coalesce(reschedule.after_mode, planned.after_mode, 'completed');
    else
      planned.after_mode := null;
    end if;
    perform pgflowd._check_wishes(
      null, planned.start_at, planned.expires_at, null, null, planned.singleton_key, 'wait',
      reschedule.after, coalesce(planned.after_mode, reschedule.after_mode, 'completed'));
    if reschedule.after is not null then
      delete from pgflowd.awaits as one
       where one.run_id = reschedule.run_id and one.step_slug = '' and one.task_index = -1;
      perform pgflowd._await_runs(reschedule.run_id, reschedule.after)
        where planned.after_mode is not null;
    end if;
    planned.due_at := case when planned.singleton_key is not null or planned.after_mode is not null
                             or planned.start_at is null then now()
                           else least(planned.start_at, planned.expires_at) end;
    update pgflowd.runs as one
       set start_at = planned.start_at, expires_at = planned.expires_at,
           due_at = planned.due_at, after_mode = planned.after_mode,
           singleton_key = planned.singleton_key,
           replaces = one.replaces and planned.singleton_key is not null
     where one.run_id = reschedule.run_id;
    if before.singleton_key <> coalesce(planned.singleton_key, '') then
      update pgflowd.runs as next set due_at = now()
        from (select one.run_id from pgflowd.runs as one
               where one.singleton_key = before.singleton_key and one.state = 'planned'
                 and one.after_mode is null and coalesce(one.start_at <= now(), true)
               order by one.created_at, one.run_id limit 1 for update skip locked) as first
       where next.run_id = first.run_id;
      perform pgflowd._notify_due(now());
    end if;
    perform pgflowd._notify_due(planned.due_at);
    perform pgflowd._record_reschedule(before, planned, reschedule.after, reschedule.reason,
                                       reschedule.actor);
    return case when pgflowd._is_blocked(planned) then 'blocked' else 'scheduled' end;
  elsif coalesce(reschedule.start_at::text, reschedule.after::text, reschedule.after_keys::text,
                 reschedule.singleton_key) is not null then
    raise exception 'run % has begun already', reschedule.run_id
      using errcode = 'PF003', hint = 'only the time when it expires can still be changed';
  end if;
  perform pgflowd._check_wishes(null, null, reschedule.expires_at, null, null);
  if reschedule.expires_at is not null then
    select one.* into before from pgflowd.runs as one where one.run_id = reschedule.run_id;
    insert into pgflowd.runs as one (run_id, flow_slug, expires_at, due_at)
    values (reschedule.run_id, run.flow_slug, reschedule.expires_at, reschedule.expires_at)
    on conflict on constraint runs_pkey do update
       set expires_at = excluded.expires_at, due_at = excluded.due_at;
    perform pgflowd._notify_due(reschedule.expires_at);
    before.run_id := reschedule.run_id;
    planned := before;
    planned.expires_at := reschedule.expires_at;
    perform pgflowd._record_reschedule(before, planned, null, reschedule.reason, reschedule.actor);
  end if;
  return 'started';
end $$;
