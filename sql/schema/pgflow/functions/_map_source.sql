-- _map_source(flow_slug, run_id, step_slug, deps_count): the array a map runs over, unpacked: the
-- run's input for a root map, else its parent's output.
-- Called by: _start_tasks.   Locks: nothing.
create or replace function pgflow._map_source(
  flow_slug text, run_id uuid, step_slug text, deps_count int)
returns jsonb language sql stable as $$
  select case when deps_count = 0
    then (select run.input #> '{}' from pgflow.runs as run where run.run_id = _map_source.run_id)
    else (select state.output #> '{}'
            from pgflow.deps as dep
            join pgflow.step_states as state
              on state.run_id = _map_source.run_id and state.step_slug = dep.dep_slug
           where dep.flow_slug = _map_source.flow_slug and dep.step_slug = _map_source.step_slug)
    end;
$$;
