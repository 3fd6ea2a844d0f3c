-- start_child(run_id, step_slug, task_index, token, child_id, given): starts a run as a child of this
-- task's run, and returns its id; null, and nothing is done, while another transaction has the task or
-- the singleton key: ask again soon. A child that the task has started before is not started again.
-- child_id  the id of the child, which the caller makes of task, flow and key given     an object with
-- `flow`, `input`, and `wishes`: `at` or `delay_s`, `expires_at` or `expires_s`, `labels`, `singleton`,
-- `on_conflict`, `actor`, `after`, `after_keys`, `after_mode`, `traceparent`, `tracestate`. Where another run has the
-- singleton key and is to be returned, or has the id of the child, which anybody can compute, and is none
-- of this task, the id is kept in a checkpoint, so that the task gets the same one ever after: then the
-- child has another id, which nobody can be given. PF001 when the token holds no live lease; PF006 if the
-- run to be returned is the parent; PF006 and PF007 where the child would wait for who waits for it
-- (_check_cycle); the errors of start. A cancel of the parent waits for this or comes before it, so it sees each
-- child; the sweep then cancels them. Security definer, since a worker's role may not lock flows; the
-- flow first, as a deletion does.
-- Called by: workers.
-- Locks: the flow against deletion; the key and the task, without waiting; see start.
create or replace function pgflowd.start_child(
  run_id uuid, step_slug text, task_index int, token bigint, child_id uuid, given text)
returns uuid language plpgsql security definer set search_path = '', pg_temp as $$
declare
  parsed constant jsonb := start_child.given::jsonb;
  wishes constant jsonb := parsed -> 'wishes';
  on_conflict constant text := coalesce(wishes ->> 'on_conflict', 'wait');
  after constant uuid[] := array(select jsonb_array_elements_text(wishes -> 'after'))::uuid[]
    || pgflowd._runs_of_keys(
         pgflowd._name_of(parsed ->> 'flow'), case when wishes ? 'after_keys' then
           array(select jsonb_array_elements_text(wishes -> 'after_keys')) end);
  mark constant text := 'runs ' || start_child.child_id;
  own_id uuid := start_child.child_id;
  singleton_key text;
  started uuid;
  status text;
begin
  select flow.starts ->> 'singleton' into singleton_key
    from pgflow.flows as flow
   where flow.flow_slug = pgflowd.current_flow(parsed ->> 'flow') for share;
  singleton_key := coalesce(wishes ->> 'singleton',
                            pgflowd._fill_template(singleton_key, parsed -> 'input', true));
  perform pgflowd._check_reserved(null, null, singleton_key);
  if singleton_key is not null and on_conflict in ('existing', 'reject')
     and not pgflowd._lock_key(singleton_key, false) then
    return null;
  elsif not pgflowd._lock_leased(
       start_child.run_id, start_child.step_slug, start_child.task_index, start_child.token) then
    return null;
  end if;
  select (kept.data ->> 'run')::uuid into started from pgflowd.checkpoints as kept
   where kept.run_id = start_child.run_id and kept.step_slug = start_child.step_slug
     and kept.task_index = start_child.task_index and kept.name = mark;
  if found then
    return started;
  end if;
  -- anybody can compute the id: a run that this task has not started is not its child, and keeps the id
  while exists (select from pgflowd.runs as run where run.run_id = own_id)
        or exists (select from pgflow.runs as run where run.run_id = own_id) loop
    if exists (select from pgflowd.runs as run
                where run.run_id = own_id and run.parent_run_id = start_child.run_id
                  and run.parent_step = start_child.step_slug
                  and run.parent_index = start_child.task_index) then
      return own_id;
    end if;
    own_id := pgflowd._run_id_of_key('', 'child ' || own_id);
  end loop;

  perform pgflowd._check_cycle(start_child.run_id, own_id, singleton_key, on_conflict, after);
  select new.run_id, new.status into started, status
    from pgflowd._start(
      parsed ->> 'flow', parsed -> 'input', own_id,
      start_at => coalesce((wishes ->> 'at')::timestamptz,
                           clock_timestamp() + make_interval(secs => (wishes ->> 'delay_s')::float8)),
      expires_at => coalesce((wishes ->> 'expires_at')::timestamptz,
                             clock_timestamp() + make_interval(secs => (wishes ->> 'expires_s')::float8)),
      labels => wishes -> 'labels', singleton_key => singleton_key,
      on_conflict => on_conflict, actor => wishes ->> 'actor',
      after => after,
      after_mode => coalesce(wishes ->> 'after_mode', 'completed'),
      traceparent => wishes ->> 'traceparent', tracestate => wishes ->> 'tracestate') as new;
  if started = start_child.run_id then
    raise exception 'run % has the singleton key % itself', started, quote_literal(singleton_key)
      using errcode = 'PF006', detail = started, hint = 'give its children another key';
  elsif status <> 'existing' then
    update pgflowd.runs as run
       set parent_run_id = start_child.run_id, parent_step = start_child.step_slug,
           parent_index = start_child.task_index
     where run.run_id = started;
  end if;
  if started <> start_child.child_id then
    insert into pgflowd.checkpoints (run_id, step_slug, task_index, name, token, data)
    values (start_child.run_id, start_child.step_slug, start_child.task_index, mark,
            start_child.token, jsonb_build_object('run', started));
  end if;
  return started;
end $$;
