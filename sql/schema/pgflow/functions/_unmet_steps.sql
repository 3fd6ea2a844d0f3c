-- _unmet_steps(run_id): returns the steps of a run that are ready and whose condition is not met.
-- A root step's condition is tested on the run's input, another's on {slug: output} of its
-- completed deps.
-- Called by: cascade_complete_taskless_steps, cascade_resolve_conditions.   Locks: nothing.
create or replace function pgflow._unmet_steps(run_id uuid)
returns setof pgflow.steps language sql stable set search_path = '', pg_temp as $$
  select step.*
    from pgflow.step_states as state
    join pgflow.steps as step
      on step.flow_slug = state.flow_slug and step.step_slug = state.step_slug
   cross join lateral (
     select case when step.deps_count = 0
                 then (select run.input from pgflow.runs as run where run.run_id = state.run_id)
                 else pgflow._deps_output(state.flow_slug, state.run_id, state.step_slug) end
   ) as given (input)
   where state.run_id = _unmet_steps.run_id
     and state.status = 'created' and state.remaining_deps = 0
     and coalesce(step.required_input_pattern, step.forbidden_input_pattern) is not null
     and (given.input @> coalesce(step.required_input_pattern, given.input)
          and not coalesce(given.input @> step.forbidden_input_pattern, false)) is not true;
$$;
