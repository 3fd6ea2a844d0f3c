-- _limit_items(flow_slug, judged): these tasks, where they lack the key of their limit since it stands in
-- the element of a map, with their keys. An array of elements is unpacked once.
-- Called by: _pass_gates.   Locks: nothing.
create or replace function pgflowd._limit_items(flow_slug text, judged pgflowd.gated[])
returns pgflowd.gated[] language plpgsql set search_path = '', pg_temp as $$
declare
  map record;
  items jsonb[];
begin
  for map in
    select one.run_id, one.step_slug, option.limit_name, option.limit_path, step.deps_count,
           array_agg(one.ordinality) as ords, array_agg(one.task_index) as indexes
      from unnest(_limit_items.judged) with ordinality as one
      join pgflowd.step_options as option
        on option.flow_slug = _limit_items.flow_slug and option.step_slug = one.step_slug
      join pgflow.steps as step
        on step.flow_slug = _limit_items.flow_slug and step.step_slug = one.step_slug
     where one.fate = 'limit' and one.limit_key is null
     group by 1, 2, 3, 4, 5
  loop
    items := pgflow._map_elements(_limit_items.flow_slug, map.run_id, map.step_slug,
                                  map.deps_count, map.indexes);
    for i in 1 .. cardinality(map.ords) loop
      judged[map.ords[i]].limit_key := pgflowd._limit_key(
        map.limit_name, map.limit_path, items[i] #>> map.limit_path[2:]);
    end loop;
  end loop;
  return judged;
end $$;
