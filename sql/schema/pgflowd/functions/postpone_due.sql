-- postpone_due(part, why): what process_due(1, part) did not get done, as the server cut it or had no room
-- for it: what is due first, and free, is due again in a minute; a run, which may be large, after as long
-- as it has been late, at most an hour. A notice, PF013, says which: its detail is an object with run, step,
-- task_index, error, and `again_s`. Security definer, since a worker's role may not change when runs are due.
-- Called by: the sweeper.   Locks: see _due_runs, _due_awaits, _due_waits; places of a limit.
create or replace function pgflowd.postpone_due(part text, why text)
returns void language plpgsql security definer set search_path = '', pg_temp as $$
declare
  later interval := interval '1 minute';
  due record;
begin
  case postpone_due.part
  when 'runs' then
    select run.run_id, null::text as step_slug, null::int as task_index,
           now() - coalesce(run.undo_wanted_at, run.cancelled_at,
             case run.state when 'planned' then run.start_at else run.expires_at end, run.created_at) as late
      into due
      from pgflowd._due_runs(1) as one (run_id) join pgflowd.runs as run on run.run_id = one.run_id;
    later := least(greatest(due.late, later), interval '1 hour');
    update pgflowd.runs as run set due_at = now() + later where run.run_id = due.run_id;
  when 'awaits' then
    select one.* into due from pgflowd._due_awaits(1) as one;
    update pgflowd.awaits as one set due_at = now() + later
     where one.awaited = due.awaited and one.run_id = due.run_id and one.step_slug = due.step_slug
       and one.task_index = due.task_index;
  when 'waits' then
    select one.* into due from pgflowd._due_waits(1) as one;
    update pgflowd.waits as wait set due_at = now() + later
     where wait.run_id = due.run_id and wait.step_slug = due.step_slug
       and wait.task_index = due.task_index;
  when 'limits' then
    select slot.run_id, slot.step_slug, slot.task_index, slot.limit_key into due
      from pgflowd.slots as slot where slot.free_at <= now() order by slot.free_at limit 1;
    update pgflowd.slots as slot set free_at = now() + later
     where slot.limit_key = due.limit_key and slot.free_at is not null;
  when 'signals' then
    select one.run_id, null::text as step_slug, null::int as task_index, one.signal_id into due
      from pgflowd._new_signals(1) as one;
    update pgflowd.signals as signal set sent_at = now() + later where signal.signal_id = due.signal_id;
  end case;
  if due.run_id is not null then
    raise notice 'what is due for run % was postponed: %', due.run_id, postpone_due.why
      using errcode = 'PF013', detail = jsonb_build_object(
        'run', due.run_id, 'step', nullif(due.step_slug, ''), 'task_index', due.task_index,
        'error', postpone_due.why, 'again_s', extract(epoch from later));
  end if;
end $$;
