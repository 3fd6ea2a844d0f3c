-- answer(run_id, step_slug, is_approved, note, actor, dedup): approves or rejects a step of a run, now or
-- before it asks; returns the id of the signal, whose name is that of the step. PF002 for an unknown
-- run or step, PF008 for a step that waits for something else; else as signal.
-- Security definer, so that a role which may touch no table can answer; whoever has no role of
-- roles.sql needs a grant.
-- Called by: clients, commands; applications.   Locks: see _signal.
create or replace function pgflowd.answer(
  run_id uuid, step_slug text, is_approved boolean, note text default '', actor text default null,
  dedup text default null)
returns bigint language plpgsql security definer set search_path = '', pg_temp as $$
declare
  known text[];
  sent record;
begin
  select array_agg(step.step_slug order by step.step_index) into known
    from pgflow.steps as step
   where step.flow_slug in (
     select run.flow_slug from pgflow.runs as run where run.run_id = answer.run_id
     union all
     select run.flow_slug from pgflowd.runs as run where run.run_id = answer.run_id);
  if not (answer.step_slug = any (known)) then
    raise exception 'run % has no step %', answer.run_id, quote_literal(left(answer.step_slug, 200))
      using errcode = 'PF002', hint = 'its steps are ' || array_to_string(known, ', ');
  elsif (select bool_and(wait.why is distinct from 'approval') from pgflowd.waits as wait
          where wait.run_id = answer.run_id and wait.kind = 'signal'
            and wait.name = answer.step_slug) then
    raise exception 'step % of run % is no approval: it waits for a signal', answer.step_slug,
      answer.run_id using errcode = 'PF008', hint = 'send it what it waits for, by `runs signal`';
  end if;
  sent := pgflowd._signal(
    answer.run_id, answer.step_slug,
    jsonb_build_object('approved', answer.is_approved, 'by', coalesce(answer.actor, session_user),
                       'note', answer.note),
    coalesce(answer.actor, session_user), answer.dedup);
  if sent.is_new then
    perform pgflowd._record_action(
      case when answer.is_approved then 'approve' else 'reject' end, answer.actor,
      run_id => answer.run_id, step_slug => answer.step_slug, reason => answer.note,
      data => jsonb_build_object('signal_id', sent.signal_id));
  end if;
  return sent.signal_id;
end $$;
