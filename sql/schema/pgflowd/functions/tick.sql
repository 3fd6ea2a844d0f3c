-- tick(name, due_at, next_at, fires): the schedule was due then and is due at `next_at` from now on; a run is
-- started for each moment of `fires`, with an id made of flow, schedule and moment, so that none is ever
-- started twice. All or nothing. False, and nothing is done, if the schedule was changed meanwhile, another
-- sweeper has it, or its flow or singleton key is locked: look again.
-- A run that cannot be started, since its flow does not take the input, is told by a notice, PF013, and
-- becomes the `error` of the schedule, which goes on. After any other error nothing was started, and all is
-- tried again in ten seconds.
-- Security definer, since a worker's role may not lock flows; the flow first, as a deletion does.
-- Called by: the sweeper.
-- Locks: the flow against deletion, the key and the schedule, without waiting; see start.
create or replace function pgflowd.tick(
  name text, due_at timestamptz, next_at timestamptz, fires timestamptz[])
returns boolean language plpgsql security definer set search_path = '', pg_temp as $$
declare
  mine pgflowd.schedules;
  moment timestamptz;
  failure text;
begin
  perform from pgflow.flows as flow
    where flow.flow_slug = (select one.flow_slug from pgflowd.schedules as one
                             where one.name = tick.name)
      for share skip locked;
  if not found or not pgflowd._lock_key('schedule ' || tick.name, false) then
    return false;
  end if;
  select * into mine from pgflowd.schedules as one
   where one.name = tick.name and one.due_at = tick.due_at for update skip locked;
  if not found then
    return false;
  end if;

  begin
    if mine.overlap <> 'allow' then  -- a run that has just ended still has the key, and is in nobody's way
      perform pgflowd._process_line('schedule ' || mine.name);
    end if;
    foreach moment in array tick.fires loop
      begin
        failure := null;
        perform pgflowd._start_scheduled(
          mine, moment, format('schedule %s %s', mine.name, extract(epoch from moment)),
          'schedule ' || mine.name);
      exception when data_exception or program_limit_exceeded or raise_exception or sqlstate 'PF006' then
        failure := format('its run for %s cannot be started: %s', moment, sqlerrm);
        perform pgflowd._tell_schedule(mine.name, failure);
      end;
    end loop;
    update pgflowd.schedules as schedule
       set due_at = tick.next_at, ticks_from = tick.next_at, ticked_at = now(),
           error = case when tick.fires = '{}' then schedule.error else failure end,
           failed_at = case when tick.fires = '{}' then schedule.failed_at
                            when failure is not null then now() end
     where schedule.name = mine.name;
  exception when others then
    perform pgflowd.postpone_schedule(mine.name, mine.due_at, sqlerrm, 10);
  end;
  return true;
end $$;
