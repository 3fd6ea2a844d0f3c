-- _start_tasks(flow_slug, msg_ids, worker_id, hide_s): starts the queued tasks of these messages and
-- returns what a worker needs to execute them; `due_at` is when the task could first be claimed, or,
-- after a wait, when that ended. It never waits: it skips tasks that are locked or started, and tasks of
-- ended runs and steps, of paused runs, and of paused flows. `hide_s` null hides each message for the
-- task's timeout and 2 s; 0 leaves it alone, because the caller is our own claim: it has hidden the
-- message, passed the gate of the step, and found no pause of the flow. Others get no task of a step
-- with a gate. `offset 0` keeps each look-up one by the whole key. The update copies what it is joined
-- to, row by row, so inputs are read after it: one may be a map's array of 100,000 elements.
-- Called by: _start_apart, start_tasks, pgflowd._start_attempts.   Locks: tasks (skips locked), then
-- messages.
create or replace function pgflow._start_tasks(
  flow_slug text, msg_ids bigint[], worker_id uuid, hide_s int default null)
returns table (run_id uuid, step_slug text, input jsonb, msg_id bigint, task_index int,
               flow_input jsonb, attempt int, max_attempts int, timeout int, due_at timestamptz)
language plpgsql set search_path = '', pg_temp as $$
#variable_conflict use_column
declare
  asked constant text := lower(coalesce(current_setting('pgflow.run_in_input', true), '') collate "C");
  with_run constant boolean := case when asked = '' then hide_s is null and pgflow._run_in_input()
                                    else asked in ('on', 'true', '1', 'yes') end;
  locked record;
  started int;
  hidden bigint;
begin
  select array_agg(task.run_id) as runs, array_agg(task.step_slug) as steps,
         array_agg(task.task_index) as indexes, array_agg(task.message_id) as messages,
         array_agg(hiding.seconds) as seconds
    into locked
    from unnest(_start_tasks.msg_ids) as read (msg_id)
   cross join lateral (
     select one.run_id, one.step_slug, one.task_index, one.message_id from pgflow.step_tasks as one
      where one.flow_slug = _start_tasks.flow_slug and one.message_id = read.msg_id
        and one.status = 'queued'
     offset 0 for no key update skip locked) as task
    left join lateral (
      select coalesce(hide_s, coalesce(step.opt_timeout, flow.opt_timeout) + 2) as seconds
        from pgflow.steps as step
        join pgflow.flows as flow on flow.flow_slug = step.flow_slug
       where hide_s is distinct from 0
         and step.flow_slug = _start_tasks.flow_slug and step.step_slug = task.step_slug
      offset 0) as hiding on true;
  if locked.runs is null then
    return;
  end if;

  -- a statement of its own, so that it sees a run that ended while the tasks were locked
  return query
    with open_task as (
      select one.*, step.step_type, step.deps_count,
             coalesce(step.opt_max_attempts, flow.opt_max_attempts) as max_attempts,
             coalesce(step.opt_timeout, flow.opt_timeout) as timeout,
             pgflow._start_delay(step) as delay_s, state.started_at as step_started_at
        from unnest(locked.runs, locked.steps, locked.indexes) as one (run_id, step_slug, task_index)
       cross join lateral (
         select run.status, run.is_paused from pgflow.runs as run
          where run.run_id = one.run_id offset 0) as run
       cross join lateral (
         select state.status, state.started_at from pgflow.step_states as state
          where state.run_id = one.run_id and state.step_slug = one.step_slug offset 0) as state
        join pgflow.flows as flow on flow.flow_slug = _start_tasks.flow_slug
        join pgflow.steps as step
          on step.flow_slug = _start_tasks.flow_slug and step.step_slug = one.step_slug
       where run.status = 'started' and not run.is_paused and state.status = 'started'
         and (hide_s = 0
              or not (step.is_gated or pgflow._is_paused(_start_tasks.flow_slug)))
    ), begun as (
      update pgflow.step_tasks as task
         set status = 'started', started_at = greatest(now(), task.queued_at),
             attempts_count = task.attempts_count + 1, last_worker_id = _start_tasks.worker_id
        from open_task
       where task.run_id = open_task.run_id and task.step_slug = open_task.step_slug
         and task.task_index = open_task.task_index
      returning open_task.*, task.message_id, task.attempts_count,
                case when task.attempts_count = 1 then
                  task.queued_at + make_interval(secs => case
                    when task.queued_at > open_task.step_started_at then 0 else open_task.delay_s end)
                end as due_at
    )
    select begun.run_id, begun.step_slug,
           case when begun.deps_count = 0 then '{}'::jsonb
                else pgflow._deps_output(_start_tasks.flow_slug, begun.run_id, begun.step_slug) end
           || case when with_run then jsonb_build_object('run', run.input) else '{}' end,
           begun.message_id, begun.task_index,
           case when begun.deps_count = 0 then run.input end,
           begun.attempts_count, begun.max_attempts, begun.timeout, begun.due_at
      from begun
      left join lateral (
        select one.input from pgflow.runs as one
         where one.run_id = begun.run_id and (begun.deps_count = 0 or with_run)
        offset 0) as run on true
     where begun.step_type = 'single'
     union all
    select map.run_id, map.step_slug, task.input, task.msg_id, task.task_index, null,
           task.attempt, map.max_attempts, map.timeout, task.due_at
      from (select begun.run_id, begun.step_slug, begun.max_attempts, begun.timeout,
                   array_agg(begun.message_id) as msg_ids, array_agg(begun.task_index) as indexes,
                   array_agg(begun.attempts_count) as attempts, array_agg(begun.due_at) as dues,
                   pgflow._map_elements(_start_tasks.flow_slug, begun.run_id, begun.step_slug,
                     begun.deps_count, array_agg(begun.task_index)) as inputs
              from begun where begun.step_type = 'map'
             group by begun.run_id, begun.step_slug, begun.deps_count, begun.max_attempts,
                      begun.timeout) as map
     cross join lateral unnest(map.inputs, map.msg_ids, map.indexes, map.attempts, map.dues)
             as task (input, msg_id, task_index, attempt, due_at);
  get diagnostics started = row_count;

  if started > 0 and hide_s is distinct from 0 then
    hidden := (select count(*) from pgflow.set_vt_batch(
                 pgflow._queue_name(_start_tasks.flow_slug), locked.messages, locked.seconds));
    if hidden < started then
      raise exception 'flow %: % tasks were claimed, but % of their messages are missing',
        _start_tasks.flow_slug, started, started - hidden
        using errcode = 'object_not_in_prerequisite_state',
              hint = 'Another program deletes from the queue; only pgflow may.';
    end if;
  end if;
end $$;
