-- _task_input(run_id, step_slug, task_index): what the handler of this task gets: the run's input, an
-- element of an array, or the outputs of its deps. Older cores keep outputs in the tasks only.
-- Called by: value_part, view activities.   Locks: nothing.
create or replace function pgflowd._task_input(run_id uuid, step_slug text, task_index int)
returns jsonb language sql stable set search_path = '', pg_temp as $$
  select case when step.step_type = 'map' and step.deps_count = 0
              then run.input -> _task_input.task_index
              when step.step_type = 'map' then deps.first -> _task_input.task_index
              when step.deps_count = 0 then run.input
              else deps.outputs end
    from pgflow.runs as run
    join pgflow.steps as step
      on step.flow_slug = run.flow_slug and step.step_slug = _task_input.step_slug
   cross join lateral (
     select json_object_agg(given.dep_slug, given.output)::jsonb as outputs,
            (array_agg(given.output))[1] as first
       from (select dep.dep_slug,
                    case when source.step_type = 'map' then to_jsonb(array_agg(task.output
                                                                     order by task.task_index))
                         else (array_agg(task.output))[1] end as output
               from pgflow.deps as dep
               join pgflow.steps as source
                 on source.flow_slug = dep.flow_slug and source.step_slug = dep.dep_slug
               join pgflow.step_tasks as task
                 on task.run_id = run.run_id and task.step_slug = dep.dep_slug
                and task.status = 'completed'
              where dep.flow_slug = run.flow_slug and dep.step_slug = step.step_slug
              group by dep.dep_slug, source.step_type) as given) as deps
   where run.run_id = _task_input.run_id;
$$;
