-- postpone_schedule(name, due_at, error, for_s): a schedule that was due then could not be dealt with; it is
-- due again in so many seconds, and its ticks are kept. False if it was changed meanwhile.
-- Security definer, since a worker's role may change no schedule.
-- Called by: tick; the sweeper.   Locks: the schedule.
create or replace function pgflowd.postpone_schedule(
  name text, due_at timestamptz, error text, for_s float8)
returns boolean language plpgsql security definer set search_path = '', pg_temp as $$
begin
  update pgflowd.schedules as schedule
     set due_at = now() + make_interval(secs => postpone_schedule.for_s),
         error = postpone_schedule.error, failed_at = now()
   where schedule.name = postpone_schedule.name and schedule.due_at = postpone_schedule.due_at;
  if found then
    perform pgflowd._tell_schedule(postpone_schedule.name, postpone_schedule.error);
  end if;
  return found;
end $$;
