-- cancel(run_id, reason, actor, undo): ends a run now, as failed, and its running tasks; see _cancel.
-- Returns `cancelled`, or `repeated` when it was cancelled before. With `undo` it is undone then,
-- whatever its flow says of runs that are cancelled; also one that was cancelled before. PF002 for an
-- unknown run, PF003 for one that has ended, PF022 if it cannot be undone. Security definer, so that a
-- role which may touch no table can cancel what it started; whoever has no role of roles.sql needs a
-- grant.
-- Called by: clients, commands, operators.   Locks: see _cancel.
create or replace function pgflowd.cancel(
  run_id uuid, reason text, actor text, undo boolean default false)
returns text language plpgsql security definer set search_path = '', pg_temp as $$
declare
  flow constant text := (select run.flow_slug from pgflow.runs as run where run.run_id = cancel.run_id
                         union select run.flow_slug from pgflowd.runs as run
                                where run.run_id = cancel.run_id);
  answer text;
begin
  if cancel.undo and flow is not null then
    perform pgflowd._require_undo(cancel.run_id, flow);
  end if;
  answer := pgflowd._cancel(cancel.run_id, cancel.reason, cancel.actor);
  if answer = 'cancelled' then
    perform pgflowd._record_action('cancel', cancel.actor, run_id => cancel.run_id,
      reason => cancel.reason, data => case when cancel.undo then '{"undo": true}'::jsonb end);
  end if;
  if cancel.undo and exists (select from pgflow.runs as run where run.run_id = cancel.run_id)
     and not exists (select from pgflowd.runs as run
                      where run.run_id = cancel.run_id and run.undo_state is not null) then
    perform pgflowd._want_undo(cancel.run_id, flow, null, null);
    if answer = 'repeated' then
      perform pgflowd._record_action('undo', cancel.actor, run_id => cancel.run_id,
                                     reason => cancel.reason);
    end if;
  end if;
  return answer;
end $$;
