-- _tell_schedule(name, error): tells the caller, by a notice, that a schedule has not started its runs.
-- Called by: postpone_schedule, tick.   Locks: nothing.
create or replace function pgflowd._tell_schedule(name text, error text)
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  raise notice 'schedule %: %', _tell_schedule.name, _tell_schedule.error
    using errcode = 'PF013',
          detail = jsonb_build_object('schedule', _tell_schedule.name, 'error', _tell_schedule.error);
end $$;
