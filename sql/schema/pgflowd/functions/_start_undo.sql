-- _start_undo(run_id): starts the run that undoes this one. False while a handler of it may be at work, whose
-- worker is woken to learn that the run has ended; and while somebody deletes the flow that undoes. From
-- here on nothing completes: all attempts are closed in the transaction that lists what to undo. If that is
-- nothing, the run is undone. Raises if the flow that undoes is not deployed, or lacks a step.
-- Called by: _process_undos.
-- Locks: attempts, that flow, what a start locks; the caller holds the run and its row in pgflowd.runs.
create or replace function pgflowd._start_undo(run_id uuid)
returns boolean language plpgsql set search_path = '', pg_temp as $$
declare
  core constant pgflow.runs := (select run from pgflow.runs as run where run.run_id = _start_undo.run_id);
  ours pgflowd.runs := (select run from pgflowd.runs as run
                                  where run.run_id = _start_undo.run_id);
  undo_flow constant text := pgflowd._undo_flow(ours.flow_slug);
  new_id uuid := pgflowd._undo_run_id(ours.run_id, ours.undo_generation);
  plan jsonb;
  missing text;
begin
  if pgflowd._may_be_at_work(_start_undo.run_id) then
    perform pgflowd._wake(queue.queue_name) from pgflowd._queues(ours.flow_slug) as queue;
    return false;
  end if;
  while exists (select from pgflow.runs as run where run.run_id = new_id)
        or exists (select from pgflowd.runs as run where run.run_id = new_id) loop
    ours.undo_generation := ours.undo_generation + 1;  -- a run that somebody has given this id
    new_id := pgflowd._undo_run_id(ours.run_id, ours.undo_generation);
  end loop;
  plan := pgflowd._undo_plan(ours.run_id, ours.flow_slug, ours.undo_generation);
  if undo_flow is null and plan <> '{}' then
    raise exception 'no flow undoes flow %: it is not deployed, or not as the code has it', ours.flow_slug
      using errcode = 'PF002',
            hint = format('run `pgflowd flows deploy %s`', pgflowd._name_of(ours.flow_slug));
  end if;
  select step.slug into missing from jsonb_object_keys(plan) as step (slug)
   where not exists (select from pgflow.steps as known
                      where known.flow_slug = undo_flow and known.step_slug = 'undo_' || step.slug);
  if found then
    raise exception 'flow % has no step undo_%: it is not deployed, or not as the code has it',
                    undo_flow, missing using errcode = 'PF002',
      hint = format('run `pgflowd flows deploy %s`', pgflowd._name_of(ours.flow_slug));
  end if;
  perform from pgflow.flows as flow where flow.flow_slug = undo_flow for share skip locked;
  if not found and plan <> '{}' then
    return false;
  end if;

  update pgflowd.attempts as attempt
     set ended_at = now(), outcome = 'lost', error_message = 'the run is being undone'
   where attempt.run_id = _start_undo.run_id and attempt.ended_at is null;
  if plan <> '{}' then
    insert into pgflowd.runs (run_id, flow_slug, created_at, created_by, undo_of)
    values (new_id, undo_flow, clock_timestamp(), 'pgflowd', ours.run_id);  -- reports may be younger than now()
    perform from pgflow.start_flows(undo_flow, array[jsonb_build_object(
      'run_id', ours.run_id, 'generation', ours.undo_generation, 'plan', plan,
      'cause', coalesce('asked for by ' || ours.undo_by || coalesce(': ' || nullif(ours.undo_reason, ''), ''),
                        nullif(to_jsonb(core) ->> 'error_message', ''), 'it ' || core.status))], array[new_id]);
    perform pgflowd._watch_runs(array[new_id]);
  end if;
  update pgflowd.runs as run
     set undo_state = case plan when '{}' then 'undone' else 'undoing' end,
         undo_generation = ours.undo_generation
   where run.run_id = _start_undo.run_id;
  perform pgflowd._send_undo_event(_start_undo.run_id);
  return true;
end $$;
