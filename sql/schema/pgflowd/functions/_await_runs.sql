-- _await_runs(run_id, after): from now on this planned run waits for the end of these runs. PF007 if one of
-- them is unknown, or is this run itself, which would wait for ever.
-- Called by: _start.   Locks: the new rows.
create or replace function pgflowd._await_runs(run_id uuid, after uuid[])
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  unknown uuid;
begin
  perform pgflowd._watch_runs('{}');  -- raises on a core that cannot
  select one.run_id into unknown from unnest(_await_runs.after) as one (run_id)
   where one.run_id = _await_runs.run_id
      or not exists (select from pgflow.runs as run where run.run_id = one.run_id)
     and not exists (select from pgflowd.runs as run where run.run_id = one.run_id) limit 1;
  if unknown is not null then
    raise exception 'there is no run %, for whose end run % is to wait', unknown, _await_runs.run_id
      using errcode = 'PF007', hint = 'start that one first';
  end if;
  insert into pgflowd.awaits (awaited, run_id)
  select distinct one.run_id, _await_runs.run_id from unnest(_await_runs.after) as one (run_id);
  perform pgflowd._notify_due(now());
end $$;
