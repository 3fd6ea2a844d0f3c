-- _run_output(run_id): the outputs of the run's completed leaves by slug; null if there is none.
-- Called by: _settle_runs.   Locks: nothing.
create or replace function pgflow._run_output(run_id uuid)
returns jsonb language sql stable set search_path = '', pg_temp as $$
  select jsonb_object_agg(state.step_slug, state.output)
    from pgflow.step_states as state
   where state.run_id = _run_output.run_id and state.status = 'completed'
     and not exists (select from pgflow.deps as dep
                      where dep.flow_slug = state.flow_slug and dep.dep_slug = state.step_slug);
$$;
