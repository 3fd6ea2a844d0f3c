-- cancel(run_id, reason, actor): ends a run now, as failed, and its running tasks; see _cancel. Returns
-- `cancelled`, or `repeated` when it was cancelled before. PF002 for an unknown run, PF003 for one that has
-- ended.
-- Security definer, so that a role which may touch no table can cancel what it started; whoever has no
-- role of roles.sql needs a grant.
-- Called by: clients, commands, operators.   Locks: see _cancel.
create or replace function pgflowd.cancel(run_id uuid, reason text, actor text)
returns text language plpgsql security definer set search_path = '', pg_temp as $$
declare
  answer constant text := pgflowd._cancel(cancel.run_id, cancel.reason, cancel.actor);
begin
  if answer = 'cancelled' then
    perform pgflowd._record_action('cancel', cancel.actor, run_id => cancel.run_id,
                                   reason => cancel.reason);
  end if;
  return answer;
end $$;
revoke execute on function pgflowd.cancel(uuid, text, text) from public;
