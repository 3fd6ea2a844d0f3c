-- undo(run_id, reason, actor, again): undoes what the tasks of a run did, once it has ended, by the
-- undos of its steps, in reverse order; returns `wanted`, or `repeated` if that was wanted before. The
-- sweep starts another run for it, as soon as no handler of this one is at work. With `again` an undo
-- that has failed is tried once more: what it has undone stays as it is. PF002 for an unknown run, PF003
-- for one that has not ended, or never began, PF005 if there is nothing to try again, PF022 if no step
-- of the flow has an undo. Security definer, so that a role which may touch no table can undo what it
-- started.
-- Called by: clients, commands, operators.   Locks: the run, its row in pgflowd.runs.
create or replace function pgflowd.undo(
  run_id uuid, reason text default null, actor text default null, again boolean default false)
returns text language plpgsql security definer set search_path = '', pg_temp as $$
declare
  run record;
  known record;
  ours record;
begin
  select one.flow_slug, one.status into run from pgflow.runs as one
   where one.run_id = undo.run_id for no key update;
  if run.status is distinct from 'completed' and run.status is distinct from 'failed' then
    select one.status, one.started_at into known from pgflowd.run_status as one
     where one.run_id = undo.run_id;
    if not found then
      raise exception 'there is no run %', undo.run_id using errcode = 'PF002';
    end if;
    raise exception 'run % cannot be undone: it is %', undo.run_id, known.status
      using errcode = 'PF003',
            hint = case when run.status is not null then '`pgflowd runs cancel RUN --undo` ends it, and undoes it then'
                        else 'it has done nothing' end;
  end if;
  select one.undo_state, one.undo_of into ours from pgflowd.runs as one where one.run_id = undo.run_id;
  if ours.undo_of is not null then
    raise exception 'run % cannot be undone: it undoes run %', undo.run_id, ours.undo_of
      using errcode = 'PF022', hint = format('`pgflowd runs undo %s --again` undoes what is left', ours.undo_of);
  end if;
  perform pgflowd._require_undo(undo.run_id, run.flow_slug);
  if undo.again and (ours.undo_state is null or ours.undo_state = 'undone') then
    raise exception 'no undo of run % has failed: it is %', undo.run_id, coalesce(ours.undo_state, run.status)
      using errcode = 'PF005', hint = case when ours.undo_state is null then 'leave `again` out'
                                           else 'there is nothing left to undo' end;
  elsif ours.undo_state is not null and not (undo.again and ours.undo_state = 'undo_failed') then
    return 'repeated';
  end if;
  perform pgflowd._want_undo(undo.run_id, run.flow_slug, coalesce(undo.actor, 'an unknown user'),
                             undo.reason);
  perform pgflowd._record_action('undo', undo.actor, run_id => undo.run_id, reason => undo.reason,
                                 data => case when undo.again then '{"again": true}'::jsonb end);
  return 'wanted';
end $$;
