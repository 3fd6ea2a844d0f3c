-- _complete_tasks(run_ids, step_slugs, task_indexes, outputs): records the results of distinct
-- tasks, of any runs and flows, in a fixed number of statements. Returns each task's status by
-- position. Raises 54000 for what cannot be recorded: an array of too many elements before a map, or a
-- map whose outputs are more than a jsonb can hold.
-- Called by: complete_task, _settle_tasks, pgflowd._pass_to_core.
-- Locks: states and tasks, then messages; the caller has locked the runs, ascending.
create or replace function pgflow._complete_tasks(
  run_ids uuid[], step_slugs text[], task_indexes int[], outputs jsonb[])
returns table (ord int, run_id uuid, step_slug text, task_index int, status text)
language plpgsql set search_path = '', pg_temp as $$
#variable_conflict use_column
declare
  violations int[];
  archived_flows text[];
  archived_messages bigint[];
  ended_runs uuid[];
  ended_steps text[];
  whole_maps boolean;
  completed int;
  v int;
begin
  with reported as materialized (
    select found.*, step.step_type,
           step.step_type = 'single'
           and (found.effect = 'act' or (found.effect = 'ignore' and found.task_status = 'queued'))
           and coalesce(case when jsonb_typeof(outputs[found.ord]) = 'array'
                             then jsonb_array_length(outputs[found.ord]) > 1000 end, true)
           and exists (select from pgflow.deps as dep
                         join pgflow.steps as child
                           on child.flow_slug = dep.flow_slug and child.step_slug = dep.step_slug
                         join pgflow.step_states as state
                           on state.run_id = found.run_id and state.step_slug = dep.step_slug
                        where dep.flow_slug = found.flow_slug and dep.dep_slug = found.step_slug
                          and child.step_type = 'map'
                          and state.initial_tasks is null)  -- a map waits for an array
           and pgflow._is_no_map_input(found.step_slug, outputs[found.ord]) as violates
      from pgflow._find_reported_tasks(
             _complete_tasks.run_ids, _complete_tasks.step_slugs, _complete_tasks.task_indexes) as found
      join pgflow.steps as step
        on step.flow_slug = found.flow_slug and step.step_slug = found.step_slug
  ), done as (
    update pgflow.step_tasks as task
       set status = 'completed', completed_at = greatest(pgflow._moment(), task.started_at),
           output = outputs[reported.ord]
      from reported
     where reported.effect = 'act' and not reported.violates
       and task.run_id = reported.run_id and task.step_slug = reported.step_slug
       and task.task_index = reported.task_index
       and task.status = 'started'  -- tested again under the lock: a recovery may have come first
    returning task.flow_slug, task.run_id, task.step_slug, task.message_id, reported.step_type,
              reported.ord
  ), per_step as (
    select done.run_id, done.step_slug, done.step_type, count(*)::int as tasks,
           case done.step_type when 'single' then count(*) end as single_tasks,
           min(done.ord) as ord  -- outputs may be large: no plan keeps one
      from done group by done.run_id, done.step_slug, done.step_type
  ), counted as (
    update pgflow.step_states as state
       set remaining_tasks = state.remaining_tasks - per_step.tasks,
           status = case when per_step.single_tasks = state.remaining_tasks then 'completed'
                         else state.status end,
           completed_at = case when per_step.single_tasks = state.remaining_tasks
                               then greatest(pgflow._moment(), state.started_at) end,
           output = case when per_step.single_tasks = state.remaining_tasks
                         then outputs[per_step.ord] end
      from per_step
     where state.run_id = per_step.run_id and state.step_slug = per_step.step_slug
    returning state.run_id, state.step_slug, state.remaining_tasks, per_step.step_type
  ), archived as (
    select done.flow_slug, done.message_id from done
    union all
    select reported.flow_slug, reported.message_id from reported where reported.effect = 'late'
  )
  select (select array_agg(reported.ord order by reported.ord) from reported where reported.violates),
         (select array_agg(archived.flow_slug order by archived.message_id) from archived),
         (select array_agg(archived.message_id order by archived.message_id) from archived),
         array_agg(counted.run_id order by counted.run_id, counted.step_slug),
         array_agg(counted.step_slug order by counted.run_id, counted.step_slug),
         bool_or(counted.step_type = 'map'), (select count(*) from done)
    into violations, archived_flows, archived_messages, ended_runs, ended_steps, whole_maps,
         completed
    from counted where counted.remaining_tasks = 0;

  if whole_maps then
    perform pgflow._complete_maps(ended_runs, ended_steps);
  end if;
  if ended_runs is not null then
    perform pgflow._send_step_events(ended_runs, ended_steps);
    perform pgflow._advance(ended_runs, ended_steps);
  end if;
  if archived_messages is not null then
    perform pgflow._archive(archived_flows, archived_messages);
  end if;
  foreach v in array coalesce(violations, '{}') loop
    perform pgflow._fail_type_violation(
      _complete_tasks.run_ids[v], _complete_tasks.step_slugs[v], _complete_tasks.task_indexes[v], outputs[v]);
  end loop;

  if completed = cardinality(_complete_tasks.run_ids) then
    return query
      select given.ord::int, given.run_id, given.step_slug, given.task_index, 'completed'
        from unnest(_complete_tasks.run_ids, _complete_tasks.step_slugs, _complete_tasks.task_indexes)
               with ordinality as given (run_id, step_slug, task_index, ord);
    return;
  end if;
  return query
    select * from pgflow._task_statuses(_complete_tasks.run_ids, _complete_tasks.step_slugs, _complete_tasks.task_indexes);
end $$;
