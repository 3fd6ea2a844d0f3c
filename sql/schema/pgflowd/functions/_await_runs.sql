-- _await_runs(run_id, after): from now on this planned run waits for the end of these runs. PF007 if one of
-- them is unknown, or would wait for this one, as both would wait for ever.
-- Called by: reschedule, _start.   Locks: the new rows.
create or replace function pgflowd._await_runs(run_id uuid, after uuid[])
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  unknown uuid;
  behind uuid;
begin
  select one.run_id into unknown from unnest(_await_runs.after) as one (run_id)
   where not exists (select from pgflow.runs as run where run.run_id = one.run_id)
     and not exists (select from pgflowd.runs as run where run.run_id = one.run_id) limit 1;
  if unknown is not null then
    raise exception 'there is no run %, for whose end run % is to wait', unknown, _await_runs.run_id
      using errcode = 'PF007', hint = 'start that one first';
  end if;
  with recursive waiting (run_id) as (
    select _await_runs.run_id
     union
    select one.run_id from waiting join pgflowd.awaits as one on one.awaited = waiting.run_id
  )
  select waiting.run_id into behind from waiting
   where waiting.run_id = any (_await_runs.after) limit 1;
  if behind is not null then
    raise exception 'run % cannot wait for run %, which waits for it', _await_runs.run_id, behind
      using errcode = 'PF007', hint = 'leave that one out';
  end if;
  insert into pgflowd.awaits (awaited, run_id)
  select distinct one.run_id, _await_runs.run_id from unnest(_await_runs.after) as one (run_id);
  perform pgflowd._notify_due(now());
end $$;
