-- resume_schedule(name, actor): a paused schedule ticks again, from now on: ticks of the pause are not run.
-- Returns `resumed`, or `repeated` when it is not paused. PF002 for an unknown one.
-- Security definer, since a worker's role may change no schedule.
-- Called by: clients, commands, operators.   Locks: the schedule.
create or replace function pgflowd.resume_schedule(name text, actor text default null)
returns text language plpgsql security definer set search_path = '', pg_temp as $$
declare
  known constant pgflowd.schedules := pgflowd._require_schedule(resume_schedule.name);
begin
  if known.paused_at is null then
    return 'repeated';
  end if;
  update pgflowd.schedules as schedule
     set paused_at = null, paused_by = null, due_at = now(), ticks_from = now()
   where schedule.name = known.name;
  perform pgflowd._notify_due(now());
  perform pgflowd._record_action(
    'resume_schedule', resume_schedule.actor, flow_slug => known.flow_slug,
    data => jsonb_build_object('schedule', known.name));
  return 'resumed';
end $$;
