-- remove_schedule(name, actor): deletes a schedule; its runs stay. Returns its origin: one of the code comes
-- back with the next definition of a flow that asks for it. PF002 for an unknown one.
-- Security definer, since a worker's role may change no schedule.
-- Called by: clients, commands, operators.   Locks: the schedule.
create or replace function pgflowd.remove_schedule(name text, actor text default null)
returns text language plpgsql security definer set search_path = '', pg_temp as $$
declare
  known constant pgflowd.schedules := pgflowd._require_schedule(remove_schedule.name);
begin
  delete from pgflowd.schedules as gone where gone.name = known.name;
  perform pgflowd._record_action(
    'remove_schedule', remove_schedule.actor, flow_slug => known.flow_slug,
    data => jsonb_build_object('schedule', known.name, 'cron', known.cron));
  return known.origin;
end $$;
