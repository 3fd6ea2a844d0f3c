-- add_minute(flow_slug, steps): adds to this minute what a worker of the flow did since it last told: a
-- JSON list of objects with step ('' for runs), completed, failed, timed_out, crashed, and the
-- histograms ran and waited.
-- Called by: workers.   Locks: the flow's row, for a key; rows of minutes, by step.
create or replace function pgflowd.add_minute(flow_slug text, steps jsonb)
returns void language plpgsql set search_path = '', pg_temp as $$
#variable_conflict use_column
begin
  insert into pgflowd.minutes as known (flow_slug, at, step_slug, completed, failed, timed_out, crashed,
                                        ran, waited)
  select add_minute.flow_slug, date_trunc('minute', now()), told.step, coalesce(told.completed, 0),
         coalesce(told.failed, 0), coalesce(told.timed_out, 0), coalesce(told.crashed, 0), told.ran,
         told.waited
    from jsonb_to_recordset(add_minute.steps) as told (
           step text, completed bigint, failed bigint, timed_out bigint, crashed bigint,
           ran bigint[], waited bigint[])
   order by told.step
      on conflict on constraint minutes_pkey do update
     set completed = known.completed + excluded.completed, failed = known.failed + excluded.failed,
         timed_out = known.timed_out + excluded.timed_out,
         crashed = known.crashed + excluded.crashed,
         ran = pgflowd._added(known.ran, excluded.ran),
         waited = pgflowd._added(known.waited, excluded.waited);
end $$;
