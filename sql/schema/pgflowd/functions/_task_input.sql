-- _task_input(run_id, step_slug, task_index): what the handler of this task gets: the run's input, an
-- element of an array, or the outputs of its deps.
-- Called by: value_part, view activities.   Locks: nothing.
create or replace function pgflowd._task_input(run_id uuid, step_slug text, task_index int)
returns jsonb language sql stable set search_path = '', pg_temp as $$
  select case when step.step_type = 'map'
              then (pgflow._map_elements(run.flow_slug, run.run_id, step.step_slug, step.deps_count,
                                         array[_task_input.task_index]))[1]
              when step.deps_count = 0 then run.input
              else pgflow._deps_output(run.flow_slug, run.run_id, step.step_slug) end
    from pgflow.runs as run
    join pgflow.steps as step
      on step.flow_slug = run.flow_slug and step.step_slug = _task_input.step_slug
   where run.run_id = _task_input.run_id;
$$;
