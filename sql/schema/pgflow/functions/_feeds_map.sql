-- _feeds_map(flow_slug, run_id, step_slug): does a map wait for this step's output to learn how
-- many tasks it has?
-- Called by: _complete_tasks.   Locks: nothing.
create or replace function pgflow._feeds_map(flow_slug text, run_id uuid, step_slug text)
returns boolean language sql stable as $$
  select exists (
    select from pgflow.deps as dep
      join pgflow.steps as child
        on child.flow_slug = dep.flow_slug and child.step_slug = dep.step_slug
      join pgflow.step_states as state
        on state.run_id = _feeds_map.run_id and state.step_slug = dep.step_slug
     where dep.flow_slug = _feeds_map.flow_slug and dep.dep_slug = _feeds_map.step_slug
       and child.step_type = 'map' and state.initial_tasks is null);
$$;
