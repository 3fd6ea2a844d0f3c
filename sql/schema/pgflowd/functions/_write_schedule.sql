-- _write_schedule(name, flow_slug, cron, input, timezone, overlap, catchup, origin, actor): inserts a
-- schedule, or changes it. With another expression or zone it counts from now, or from a tick of the
-- last minute that was not run; else nothing that is due is forgotten. A pause stays.
-- Called by: set_schedule, _set_schedules.   Locks: the schedule.
create or replace function pgflowd._write_schedule(
  name text, flow_slug text, cron text, input jsonb, timezone text, overlap text, catchup text,
  origin text, actor text)
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  insert into pgflowd.schedules as known
         (name, flow_slug, cron, timezone, input, overlap, catchup, origin, changed_by)
  values (_write_schedule.name, _write_schedule.flow_slug, _write_schedule.cron,
          _write_schedule.timezone, _write_schedule.input, _write_schedule.overlap,
          _write_schedule.catchup, _write_schedule.origin, _write_schedule.actor)
  on conflict on constraint schedules_pkey do update
     set flow_slug = excluded.flow_slug, input = excluded.input, overlap = excluded.overlap,
         catchup = excluded.catchup, cron = excluded.cron, timezone = excluded.timezone,
         changed_at = now(), changed_by = excluded.changed_by, error = null, failed_at = null,
         ticks_from = case
           when (known.cron, known.timezone) = (excluded.cron, excluded.timezone) then known.ticks_from
           else greatest(now() - interval '1 minute', least(known.ticks_from, now())) end,
         due_at = case when known.paused_at is null then least(known.due_at, now()) end;
  perform pgflowd._notify_due(now());
end $$;
