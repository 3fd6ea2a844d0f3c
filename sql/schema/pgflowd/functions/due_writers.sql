-- due_writers(known): the same as `writers` of what may make something due: waits, signals, runs, awaits,
-- slots, schedules.
-- Called after the commit of sweeper_sleeps it names all that may have looked for sleepers in vain.
-- Called by: the sweeper.   Locks: nothing.
create or replace function pgflowd.due_writers(known text[] default null)
returns text[] language sql set search_path = '', pg_temp as $$
  select pgflowd._writers('{pgflowd.waits,pgflowd.signals,pgflowd.runs,pgflowd.awaits,pgflowd.slots,pgflowd.schedules}'::regclass[]::oid[],
                          due_writers.known);
$$;
