-- _map_elements(flow_slug, run_id, step_slug, deps_count, task_indexes): returns the inputs of
-- these tasks of a map, in their order: elements of the run's input for a root map, else of its
-- parent's output. The array may be as large as a run's input. It is unpacked once, into a
-- variable: a node of a plan that keeps it would copy it, and beyond `work_mem` into a file.
-- Called by: pgflowd._limit_items, pgflowd._task_input, _start_tasks.   Locks: nothing.
create or replace function pgflow._map_elements(
  flow_slug text, run_id uuid, step_slug text, deps_count int, task_indexes int[])
returns jsonb[] language plpgsql stable set search_path = '', pg_temp as $$
declare
  items jsonb;
begin
  if deps_count = 0 then
    select run.input #> '{}' into items
      from pgflow.runs as run where run.run_id = _map_elements.run_id;
  else
    select state.output #> '{}' into items
      from pgflow.deps as dep
      join pgflow.step_states as state
        on state.run_id = _map_elements.run_id and state.step_slug = dep.dep_slug
     where dep.flow_slug = _map_elements.flow_slug and dep.step_slug = _map_elements.step_slug;
  end if;
  return array(select items -> one.index
                 from unnest(task_indexes) with ordinality as one (index, ord) order by one.ord);
end $$;
