-- _start_tasks(flow_slug, msg_ids, worker_id, hide_s): starts the queued tasks of these messages
-- and answers what a worker needs to run them. What somebody else holds or has started, and
-- what belongs to an ended run or step, is passed over: it never waits.
-- hide_s null hides the messages for the task's timeout and 2 s; 0 leaves them as they are,
-- because the caller's read has hidden them.
-- `offset 0` keeps each look-up one by the whole key. The whole array of a map is unpacked once
-- per step, whatever the number of its tasks here, and read once, however large it is.
-- Called by: start_tasks, pgflowd.claim.   Locks: tasks (skips locked), then messages.
create or replace function pgflow._start_tasks(
  flow_slug text, msg_ids bigint[], worker_id uuid, hide_s int default null)
returns setof pgflow.step_task_record language plpgsql set search_path = '', pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
  with_run constant boolean := lower(coalesce(current_setting('pgflow.run_in_input', true), '')) in ('on', 'true', '1', 'yes');
  claim record;
  hidden bigint;
begin
  select array_agg(task.run_id) as runs, array_agg(task.step_slug) as steps,
         array_agg(task.task_index) as indexes
    into claim
    from unnest(_start_tasks.msg_ids) as read (msg_id)
   cross join lateral (
     select one.run_id, one.step_slug, one.task_index from pgflow.step_tasks as one
      where one.flow_slug = _start_tasks.flow_slug and one.message_id = read.msg_id
        and one.status = 'queued'
     offset 0 for no key update skip locked) as task;
  if claim.runs is null then
    return;
  end if;

  -- a statement of its own, so that it sees a run that ended while the tasks were locked
  with open_task as (
    select held.*
      from unnest(claim.runs, claim.steps, claim.indexes) as held (run_id, step_slug, task_index)
     cross join lateral (
       select one.status from pgflow.runs as one where one.run_id = held.run_id offset 0) as run
     cross join lateral (
       select one.status from pgflow.step_states as one
        where one.run_id = held.run_id and one.step_slug = held.step_slug offset 0) as state
     where run.status = 'started' and state.status = 'started'
  ), begun as (
    update pgflow.step_tasks as task
       set status = 'started', started_at = greatest(now(), task.queued_at), attempts_count = task.attempts_count + 1,
           last_worker_id = _start_tasks.worker_id
      from open_task
     where task.run_id = open_task.run_id and task.step_slug = open_task.step_slug
       and task.task_index = open_task.task_index
    returning task.run_id, task.step_slug, task.task_index, task.message_id
  )
  select array_agg(begun.run_id) as runs, array_agg(begun.step_slug) as steps,
         array_agg(begun.task_index) as indexes, array_agg(begun.message_id) as messages
    into claim from begun;
  if claim.runs is null then
    return;
  end if;

  if hide_s is distinct from 0 then
    select pgflow._hide(array_agg(_start_tasks.flow_slug), array_agg(begun.message_id),
                        array_agg(coalesce(hide_s, coalesce(step.opt_timeout, flow.opt_timeout) + 2)))
      into hidden
      from unnest(claim.steps, claim.messages) as begun (step_slug, message_id)
      join pgflow.steps as step
        on step.flow_slug = _start_tasks.flow_slug and step.step_slug = begun.step_slug
      join pgflow.flows as flow on flow.flow_slug = _start_tasks.flow_slug;
    if hidden < cardinality(claim.messages) then
      raise exception 'flow %: % tasks were claimed, but % of their messages are missing',
        _start_tasks.flow_slug, cardinality(claim.messages), cardinality(claim.messages) - hidden
        using errcode = 'object_not_in_prerequisite_state',
              hint = 'Somebody deletes from the queue; only pgflow may.';
    end if;
  end if;

  return query
    with begun as materialized (
      select begun.*, step.step_type, step.deps_count
        from unnest(claim.runs, claim.steps, claim.indexes, claim.messages)
               as begun (run_id, step_slug, task_index, message_id)
        join pgflow.steps as step
          on step.flow_slug = _start_tasks.flow_slug and step.step_slug = begun.step_slug
    ), whole as materialized (
      select source.*, pgflow._map_source(
               _start_tasks.flow_slug, source.run_id, source.step_slug, source.deps_count) as items
        from (select begun.run_id, begun.step_slug, begun.deps_count,
                     array_agg(begun.task_index) as indexes, array_agg(begun.message_id) as messages
                from begun where begun.step_type = 'map'
               group by begun.run_id, begun.step_slug, begun.deps_count) as source
    )
    select _start_tasks.flow_slug, begun.run_id, begun.step_slug,
           case when begun.deps_count = 0 then '{}'::jsonb
                else pgflow._deps_output(_start_tasks.flow_slug, begun.run_id, begun.step_slug) end
           || case when with_run then jsonb_build_object('run', run.input) else '{}' end,
           begun.message_id, begun.task_index,
           case when begun.deps_count = 0 then run.input end
      from begun join pgflow.runs as run on run.run_id = begun.run_id
     where begun.step_type = 'single'
     union all
    select _start_tasks.flow_slug, whole.run_id, whole.step_slug, whole.items -> element.task_index,
           element.message_id, element.task_index, null
      from whole cross join unnest(whole.indexes, whole.messages) as element (task_index, message_id);
end $$;
