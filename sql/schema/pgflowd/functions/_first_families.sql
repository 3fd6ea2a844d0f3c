-- _first_families(run_ids, max_tasks): how many of these runs, from the first on, have families with no more
-- tasks together than this; one in any case.
-- Called by: _prune.   Locks: nothing.
create or replace function pgflowd._first_families(run_ids uuid[], max_tasks bigint)
returns int language plpgsql stable set search_path = '', pg_temp as $$
declare
  total bigint := 0;
begin
  for nr in 1 .. coalesce(cardinality(_first_families.run_ids), 0) loop
    total := total + 1 + coalesce((
      select sum(coalesce(state.initial_tasks, 0))
        from pgflowd._families(_first_families.run_ids[nr : nr]) as family
       cross join lateral (
         select one.initial_tasks from pgflow.step_states as one
          where one.run_id = family.run_id offset 0) as state), 0);
    if nr > 1 and total > _first_families.max_tasks then
      return nr - 1;
    end if;
  end loop;
  return greatest(1, cardinality(_first_families.run_ids));
end $$;
