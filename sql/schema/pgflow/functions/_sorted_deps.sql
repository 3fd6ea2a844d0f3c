-- _sorted_deps(step): returns the dependencies of a shape's step, sorted, as text; none give ''.
-- Called by: _compare_steps.   Locks: nothing.
create or replace function pgflow._sorted_deps(step jsonb)
returns text language sql immutable set search_path = '', pg_temp as $$
  select coalesce(string_agg(dep, ', ' order by dep), '')
    from jsonb_array_elements_text(coalesce(nullif(step -> 'dependencies', 'null'), '[]')) as dep;
$$;
