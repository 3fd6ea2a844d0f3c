-- _deps_output(flow_slug, run_id, step_slug): returns {slug: output} of the step's completed
-- deps. A skipped dep has no key; a completed one with SQL null has JSON null; no dep gives {}.
-- Called by: _start_tasks, _unmet_steps.   Locks: nothing.
create or replace function pgflow._deps_output(flow_slug text, run_id uuid, step_slug text)
returns jsonb language sql stable set search_path = '', pg_temp as $$
  select coalesce(jsonb_object_agg(state.step_slug, state.output), '{}')
    from pgflow.deps as dep
    join pgflow.step_states as state
      on state.run_id = _deps_output.run_id and state.step_slug = dep.dep_slug
   where dep.flow_slug = _deps_output.flow_slug and dep.step_slug = _deps_output.step_slug
     and state.status = 'completed';
$$;
