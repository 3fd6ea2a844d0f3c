-- _count_down(run_ids, step_slugs): counts down the dependents of steps that have just completed
-- or been skipped. Each dependent loses one remaining_deps per such step. A dependent map gets
-- its number of tasks: the length of its parent's output, or 0 after a parent that was skipped
-- or had no tasks itself.
-- Returns the dependents that may start at once, and the runs in which a ready step has a
-- condition or no task: there conditions and empty maps must be settled first.
-- Called by: _advance, cascade_complete_taskless_steps, _skip_unmet.
-- Locks: the dependents by slug (runs are locked already).
create or replace function pgflow._count_down(
  run_ids uuid[], step_slugs text[],
  out ready_runs uuid[], out ready_steps text[], out unsettled uuid[])
language plpgsql set search_path = '', pg_temp as $$
#variable_conflict use_column
begin
  with edge as (
    select parent.run_id, child.step_slug, child.step_index, count(*)::int as parents,
           max(case when child.step_type <> 'map' then null
                    when parent.status = 'skipped' or parent.initial_tasks = 0 then 0
                    when jsonb_typeof(parent.output) = 'array'
                      then jsonb_array_length(parent.output) end) as task_count,
           coalesce(child.required_input_pattern, child.forbidden_input_pattern) is not null as conditional
      from unnest(run_ids, step_slugs) as ended (run_id, step_slug)
     cross join lateral (
       select one.* from pgflow.step_states as one
        where one.run_id = ended.run_id and one.step_slug = ended.step_slug offset 0) as parent
      join pgflow.deps as dep
        on dep.flow_slug = parent.flow_slug and dep.dep_slug = parent.step_slug
      join pgflow.steps as child
        on child.flow_slug = dep.flow_slug and child.step_slug = dep.step_slug
     group by parent.run_id, child.step_slug, child.step_index, child.step_type,
              child.required_input_pattern, child.forbidden_input_pattern
  ), counted as (
    update pgflow.step_states as state
       set remaining_deps = state.remaining_deps - edge.parents,
           initial_tasks = coalesce(state.initial_tasks, edge.task_count)
      from edge
     where state.run_id = edge.run_id and state.step_slug = edge.step_slug
    returning state.run_id, state.step_slug, edge.step_index, state.initial_tasks, edge.conditional,
              state.status = 'created' and state.remaining_deps = 0 as ready
  )
  select array_agg(counted.run_id order by counted.run_id, counted.step_slug)
           filter (where counted.initial_tasks > 0),
         array_agg(counted.step_slug order by counted.run_id, counted.step_slug)
           filter (where counted.initial_tasks > 0),
         array_agg(distinct counted.run_id)
           filter (where counted.conditional or counted.initial_tasks = 0)
    into ready_runs, ready_steps, unsettled
    from counted where counted.ready;
end $$;
