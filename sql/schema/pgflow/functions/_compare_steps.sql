-- _compare_steps(step_index, first, second): returns what differs between two steps of shapes.
-- An absent slug, type or mode is not a difference; an absent pattern differs from "not defined".
-- Called by: _compare_flow_shapes.   Locks: nothing.
create or replace function pgflow._compare_steps(step_index int, first jsonb, second jsonb)
returns text[] language sql stable set search_path = '', pg_temp as $$
  with aspect (place, label, mine, theirs, form) as (
    select 1, 'slug', first ->> 'slug', second ->> 'slug', '''%s'' vs ''%s'''
    union all
    select 2, 'type', first ->> 'stepType', second ->> 'stepType', '''%s'' vs ''%s'''
    union all
    select 3, 'dependencies', pgflow._sorted_deps(first), pgflow._sorted_deps(second), '[%s] vs [%s]'
    union all
    select 3 + mode.nr, mode.name, first ->> mode.name, second ->> mode.name, '''%s'' vs ''%s'''
      from pgflowd._options() with ordinality as mode (
             name, field, is_mode, is_of_flow, preset, lowest, highest, words, nr)
     where mode.is_mode
    union all
    select 5 + nr, pattern, first ->> pattern, second ->> pattern, '''%s'' vs ''%s'''
      from unnest(array['requiredInputPattern', 'forbiddenInputPattern']) with ordinality as p (pattern, nr)
  )
  select coalesce(array_agg(
           format('Step at index %s: %s %s ' || form, step_index, label,
                  case label when 'dependencies' then 'differ' else 'differs' end, mine, theirs)
           order by place), '{}')
    from aspect
   where case when place < 6 then mine <> theirs else mine is distinct from theirs end;
$$;
