-- _start_scheduled(schedule, tick, key, actor): starts a run of a schedule for this moment, as its
-- overlap asks, and returns its id and what became of it, as start does. A key makes it the only one
-- that is ever started with it. PF006 where a run has that key which is none of the schedule.
-- Called by: fire_schedule, tick.   Locks: see start.
create or replace function pgflowd._start_scheduled(
  schedule pgflowd.schedules, tick timestamptz, key text, actor text, out run_id uuid, out status text)
language plpgsql set search_path = '', pg_temp as $$
begin
  select started.run_id, started.status into run_id, status
    from pgflowd._start(
      schedule.flow_slug, schedule.input, start_at => tick, key => _start_scheduled.key,
      labels => jsonb_build_object(
        'schedule', schedule.name,
        'scheduled_for', to_char(tick at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')),
      singleton_key => case when schedule.overlap <> 'allow' then 'schedule ' || schedule.name end,
      on_conflict => case schedule.overlap when 'skip' then 'existing' when 'replace' then 'replace'
                                           else 'wait' end,
      actor => _start_scheduled.actor) as started;
  if status = 'existing' then
    if not exists (select from pgflowd.runs as known
                    where known.run_id = _start_scheduled.run_id
                      and known.labels ->> 'schedule' = schedule.name) then
      raise exception 'run % has a key of schedule %, and is no run of it',
                      _start_scheduled.run_id, quote_literal(schedule.name)
        using errcode = 'PF006', detail = _start_scheduled.run_id,
              hint = format('look at it, then `pgflowd runs delete %s`', _start_scheduled.run_id);
    end if;
  else
    update pgflowd.schedules as known
       set last_at = _start_scheduled.tick, last_run_id = _start_scheduled.run_id
     where known.name = schedule.name;
  end if;
end $$;
