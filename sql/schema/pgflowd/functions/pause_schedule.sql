-- pause_schedule(name, actor): from now on it has no ticks, until resume_schedule; returns `paused`, or
-- `repeated` when it is paused already. Its runs go on. A new definition of its flow does not end
-- the pause. PF002 for an unknown one.
-- Security definer, since a worker's role may change no schedule.
-- Called by: clients, commands, operators.   Locks: the schedule.
create or replace function pgflowd.pause_schedule(name text, actor text default null)
returns text language plpgsql security definer set search_path = '', pg_temp as $$
declare
  known constant pgflowd.schedules := pgflowd._require_schedule(pause_schedule.name);
begin
  if known.paused_at is not null then
    return 'repeated';
  end if;
  update pgflowd.schedules as schedule
     set paused_at = now(), paused_by = pause_schedule.actor, due_at = null, error = null,
         failed_at = null
   where schedule.name = known.name;
  perform pgflowd._record_action(
    'pause_schedule', pause_schedule.actor, flow_slug => known.flow_slug,
    data => jsonb_build_object('schedule', known.name));
  return 'paused';
end $$;
