-- due_schedules(max_rows): the schedules that are due, those first that have been for longest, with the
-- database's time, up to which their ticks are to be computed.
-- Called by: the sweeper.   Locks: nothing.
create or replace function pgflowd.due_schedules(max_rows int default 50)
returns table (name text, cron text, timezone text, catchup text, due_at timestamptz,
               ticks_from timestamptz, read_at timestamptz)
language sql stable set search_path = '', pg_temp as $$
  select schedule.name, schedule.cron, schedule.timezone, schedule.catchup, schedule.due_at,
         schedule.ticks_from, now()
    from pgflowd.schedules as schedule
   where schedule.due_at <= now() order by schedule.due_at limit max_rows;
$$;
