-- _join_outputs(run_id, step_slugs): returns {slug: output} of these steps, however large they are;
-- SQL null when that is more than a jsonb can hold. Sizes are summed before anything is built:
-- first those on disk, then, if that is not little, those of the values, which may be a
-- hundred times larger. `#> '{}'` gives the whole value, and frees it row by row.
-- Called by: _complete_runs, _deps_output.   Locks: nothing.
create or replace function pgflow._join_outputs(run_id uuid, step_slugs text[])
returns jsonb language plpgsql stable set search_path = '', pg_temp as $$
declare
  bytes bigint;
begin
  select sum(pg_column_size(state.output)) into bytes from pgflow.step_states as state
   where state.run_id = _join_outputs.run_id and state.step_slug = any(step_slugs);
  if bytes > 1000000 then
    select sum(pg_column_size(state.output #> '{}') + octet_length(state.step_slug) + 16)
      into bytes from pgflow.step_states as state
     where state.run_id = _join_outputs.run_id and state.step_slug = any(step_slugs);
    if bytes > 268435455 then
      return null;
    end if;
  end if;
  if cardinality(step_slugs) = 1 then  -- the text of a value takes time and memory
    return (select jsonb_build_object(state.step_slug, state.output)
              from pgflow.step_states as state
             where state.run_id = _join_outputs.run_id and state.step_slug = step_slugs[1]);
  end if;
  return (select json_object_agg(state.step_slug, state.output)::jsonb
            from pgflow.step_states as state
           where state.run_id = _join_outputs.run_id and state.step_slug = any(step_slugs));
end $$;
