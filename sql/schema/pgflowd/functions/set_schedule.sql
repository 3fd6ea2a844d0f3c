-- set_schedule(name, flow_slug, cron, input, timezone, overlap, catchup, actor): adds a schedule of an
-- operator, or changes it; returns `added`, `changed`, or `repeated` where it was so.
--   cron      five fields, as "0 3 * * *"; "@hourly", "@daily", "@weekly", "@monthly", "@yearly"; or
--             "@every 30s": the multiples of that time since 1970. The sweeper reads it, so a wrong one
--             is noticed then: it becomes the `error` of the schedule
--   timezone  a name of the tz database
--   overlap   while its last run has not ended a tick is skipped (`skip`), starts a run all the same
--             (`allow`), lets one wait in line (`wait`), or replaces it (`replace`)
--   catchup   of the ticks that are more than a minute late, run the last (`one`), `none`, or `all`, at
--             most a hundred
-- PF002 for an unknown flow; PF009 for a name that a schedule of the code has, and for values that cannot
-- be.
-- Security definer, since a worker's role may change no schedule.
-- Called by: clients, commands, operators.   Locks: the schedule.
create or replace function pgflowd.set_schedule(
  name text, flow_slug text, cron text, input jsonb default '{}', timezone text default 'UTC',
  overlap text default 'skip', catchup text default 'one', actor text default null)
returns text language plpgsql security definer set search_path = '', pg_temp as $$
declare
  known pgflowd.schedules;
begin
  perform pgflowd._require_flow(set_schedule.flow_slug);
  if (length(set_schedule.name) between 1 and 120) is not true then
    raise exception 'a schedule cannot have this name: %', coalesce(left(set_schedule.name, 130), 'null')
      using errcode = 'PF009', hint = 'use 1 to 120 characters';
  elsif (set_schedule.overlap in ('skip', 'allow', 'wait', 'replace')) is not true then
    raise exception 'overlap cannot be %', coalesce(left(set_schedule.overlap, 100), 'null')
      using errcode = 'PF009', hint = 'it is skip, allow, wait or replace';
  elsif (set_schedule.catchup in ('one', 'none', 'all')) is not true then
    raise exception 'catchup cannot be %', coalesce(left(set_schedule.catchup, 100), 'null')
      using errcode = 'PF009', hint = 'it is one, none or all';
  elsif set_schedule.cron is null or set_schedule.timezone is null or set_schedule.input is null then
    raise exception 'a schedule has an expression, a time zone and an input'
      using errcode = 'PF009', hint = 'none of them may be null';
  elsif jsonb_path_exists(set_schedule.input, '$.**{500 to last}') then  -- Python cannot read more than 1000
    raise exception 'the input of schedule % is nested more than 500 levels deep', set_schedule.name
      using errcode = 'PF009', hint = 'give a flatter one';
  end if;

  select * into known from pgflowd.schedules as one where one.name = set_schedule.name for update;
  if known.origin = 'code' then
    raise exception 'schedule % comes from the code of flow %', known.name, known.flow_slug
      using errcode = 'PF009', hint = 'change it there, or choose another name';
  elsif (known.flow_slug, known.cron, known.input, known.timezone, known.overlap, known.catchup)
        = (set_schedule.flow_slug, set_schedule.cron, set_schedule.input, set_schedule.timezone,
           set_schedule.overlap, set_schedule.catchup) then
    return 'repeated';
  end if;
  perform pgflowd._write_schedule(
    set_schedule.name, set_schedule.flow_slug, set_schedule.cron, set_schedule.input,
    set_schedule.timezone, set_schedule.overlap, set_schedule.catchup, 'operator', set_schedule.actor);
  perform pgflowd._record_action(
    'set_schedule', set_schedule.actor, flow_slug => set_schedule.flow_slug,
    data => jsonb_build_object('schedule', set_schedule.name, 'cron', set_schedule.cron,
                               'timezone', set_schedule.timezone));
  return case when known.name is null then 'added' else 'changed' end;
end $$;
