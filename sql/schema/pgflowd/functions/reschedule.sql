-- reschedule(run_id, start_at, expires_at, reason, actor): lets a planned run begin at another time, or
-- any open run expire at another time; null leaves it as it is. Returns the status as start does. PF002
-- for an unknown run, PF003 for one that has ended, or that has begun and is to begin at another time;
-- PF009 for times that cannot be. Security definer, so that a role which may touch no table can change
-- what it started.
-- Called by: clients, commands, applications.
-- Locks: the run, its row in pgflowd.runs.
create or replace function pgflowd.reschedule(
  run_id uuid, start_at timestamptz default null, expires_at timestamptz default null,
  reason text default null, actor text default null)
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

  if planned.state = 'ended' or run.status <> 'started' then
    raise exception 'run % has ended already', reschedule.run_id using errcode = 'PF003';
  elsif planned.state = 'planned' then
    before := planned;
    planned.start_at := coalesce(reschedule.start_at, planned.start_at);
    planned.expires_at := coalesce(reschedule.expires_at, planned.expires_at);
    perform pgflowd._check_wishes(null, planned.start_at, planned.expires_at, null, null);
    planned.due_at := case when planned.singleton_key is not null or planned.after_mode is not null
                             or planned.start_at is null then now()
                           else least(planned.start_at, planned.expires_at) end;
    update pgflowd.runs as one
       set start_at = planned.start_at, expires_at = planned.expires_at,
           due_at = planned.due_at
     where one.run_id = reschedule.run_id;
    perform pgflowd._notify_due(planned.due_at);
    perform pgflowd._record_reschedule(before, planned.start_at, planned.expires_at,
                                       reschedule.reason, reschedule.actor);
    return case when pgflowd._is_blocked(planned) then 'blocked' else 'scheduled' end;
  elsif reschedule.start_at is not null then
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
    perform pgflowd._record_reschedule(before, before.start_at, reschedule.expires_at,
                                       reschedule.reason, reschedule.actor);
  end if;
  return 'started';
end $$;
