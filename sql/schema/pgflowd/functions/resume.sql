-- resume(run_id, reason, actor): tasks of a paused run may begin again, and its timers go on with what
-- was left of them; returns `resumed`, or `repeated` when it is not paused. See _resume. PF002 for an
-- unknown run. Security definer, so that a role which may touch no table can resume what it started.
-- Called by: clients, commands, operators.   Locks: see _resume.
create or replace function pgflowd.resume(
  run_id uuid, reason text default null, actor text default null)
returns text language plpgsql security definer set search_path = '', pg_temp as $$
declare
  answer constant text := pgflowd._resume(resume.run_id);
begin
  if answer = 'resumed' then
    perform pgflowd._record_action('resume', resume.actor, run_id => resume.run_id,
                                   reason => resume.reason);
  end if;
  return answer;
end $$;
