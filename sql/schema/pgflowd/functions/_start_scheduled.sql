-- _start_scheduled(schedule, tick, key, actor): starts a run of a schedule for this moment, as its
-- overlap asks, and returns its id and what became of it, as start does. A key makes it the only one
-- that is ever started with it.
-- Called by: fire_schedule, tick.   Locks: see start.
create or replace function pgflowd._start_scheduled(
  schedule pgflowd.schedules, tick timestamptz, key text, actor text, out run_id uuid, out status text)
language plpgsql set search_path = '', pg_temp as $$
begin
  select started.run_id, started.status into run_id, status
    from pgflowd.start(
      schedule.flow_slug, schedule.input, start_at => tick, key => _start_scheduled.key,
      labels => jsonb_build_object(
        'schedule', schedule.name,
        'scheduled_for', to_char(tick at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')),
      singleton_key => case when schedule.overlap <> 'allow' then 'schedule ' || schedule.name end,
      on_conflict => case schedule.overlap when 'skip' then 'existing' when 'replace' then 'replace'
                                           else 'wait' end,
      actor => _start_scheduled.actor) as started;
  if status <> 'existing' then
    update pgflowd.schedules as known
       set last_at = _start_scheduled.tick, last_run_id = _start_scheduled.run_id
     where known.name = schedule.name;
  end if;
end $$;
