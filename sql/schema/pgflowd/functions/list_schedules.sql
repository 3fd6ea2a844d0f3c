-- list_schedules(flow_slug): all schedules, or those of one flow, by their names, with the status of the last
-- run. `next_at` is null where it has not been computed yet, or the schedule is paused.
-- Called by: clients, commands.   Locks: nothing.
create or replace function pgflowd.list_schedules(flow_slug text default null)
returns table (name text, flow_slug text, cron text, timezone text, input jsonb, overlap text,
               catchup text, origin text, next_at timestamptz, last_at timestamptz,
               last_run_id uuid, last_status text, error text, failed_at timestamptz,
               paused_at timestamptz, paused_by text, changed_at timestamptz, changed_by text)
language sql stable set search_path = '', pg_temp as $$
  select schedule.name, schedule.flow_slug, schedule.cron, schedule.timezone, schedule.input,
         schedule.overlap, schedule.catchup, schedule.origin,
         case when schedule.due_at = schedule.ticks_from and schedule.due_at > now()
              then schedule.due_at end,
         schedule.last_at, schedule.last_run_id,
         (select run.status from pgflowd.run_status as run
           where run.run_id = schedule.last_run_id),
         schedule.error, schedule.failed_at, schedule.paused_at, schedule.paused_by,
         schedule.changed_at, schedule.changed_by
    from pgflowd.schedules as schedule
   where list_schedules.flow_slug is null or schedule.flow_slug = list_schedules.flow_slug
   order by schedule.name collate "C";
$$;
