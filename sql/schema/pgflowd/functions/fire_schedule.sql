-- fire_schedule(name, actor): starts a run of this schedule now, besides its ticks, also while it is paused;
-- returns the run's id and what became of it, as start does: `existing` is the run that has not ended,
-- of a schedule that skips. PF002 for an unknown one, and the errors of start.
-- Security definer, as start.
-- Called by: clients, commands, operators.   Locks: see start.
create or replace function pgflowd.fire_schedule(
  name text, actor text default null, out run_id uuid, out status text)
language plpgsql security definer set search_path = '', pg_temp as $$
declare
  known pgflowd.schedules;
begin
  select * into known from pgflowd.schedules as one where one.name = fire_schedule.name;
  if not found then
    raise exception 'there is no schedule %', quote_literal(fire_schedule.name)
      using errcode = 'PF002', hint = 'see `pgflowd schedules list`';
  end if;
  select started.run_id, started.status into run_id, status
    from pgflowd._start_scheduled(known, now(), null, fire_schedule.actor) as started;
  if status <> 'existing' then
    perform pgflowd._record_action('fire_schedule', fire_schedule.actor, run_id,
                                   data => jsonb_build_object('schedule', known.name));
  end if;
end $$;
