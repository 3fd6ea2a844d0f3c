-- signal(run_id, name, payload, actor, dedup): tells a run something; returns the id of the signal. The
-- sweep gives it to the first task of the run that waits for this name, now or later (process_due).
-- Given once more with the same `dedup` it returns the first one's id, also when the run has ended.
-- PF002 for an unknown run, PF003 for one that has ended, both as the caller's snapshot shows them;
-- PF021 for a payload of more than `checkpoint_max` bytes, 22023 for a bad name.
-- Security definer, so that a role which may touch no table can signal what it started; whoever has no
-- role of roles.sql needs a grant.
-- Called by: clients, commands; applications.   Locks: see _signal.
create or replace function pgflowd.signal(
  run_id uuid, name text, payload jsonb default 'null', actor text default null,
  dedup text default null)
returns bigint language plpgsql security definer set search_path = '', pg_temp as $$
declare
  sent constant record := pgflowd._signal(signal.run_id, signal.name, signal.payload, signal.actor,
                                          signal.dedup);
begin
  if sent.is_new then
    perform pgflowd._record_action(
      'signal', signal.actor, run_id => signal.run_id,
      data => jsonb_build_object('name', signal.name, 'signal_id', sent.signal_id));
  end if;
  return sent.signal_id;
end $$;
