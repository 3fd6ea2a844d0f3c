-- _require_schedule(name): returns a schedule, and locks it. PF002 if there is none of this name.
-- Called by: pause_schedule, remove_schedule, resume_schedule.   Locks: the schedule.
create or replace function pgflowd._require_schedule(name text)
returns pgflowd.schedules language plpgsql set search_path = '', pg_temp as $$
declare
  known pgflowd.schedules;
begin
  select * into known from pgflowd.schedules as one
   where one.name = _require_schedule.name for update;
  if not found then
    raise exception 'there is no schedule %', quote_literal(_require_schedule.name)
      using errcode = 'PF002', hint = 'see `pgflowd schedules list`';
  end if;
  return known;
end $$;
