-- _deps_output(flow_slug, run_id, step_slug): returns {slug: output} of the step's completed
-- deps. A skipped dep has no key; a completed one with SQL null has JSON null; no dep gives {}.
-- Raises 54000 when they are more than a jsonb can hold.
-- Called by: pgflowd._task_input, _start_tasks, _unmet_steps.   Locks: nothing.
create or replace function pgflow._deps_output(flow_slug text, run_id uuid, step_slug text)
returns jsonb language plpgsql stable set search_path = '', pg_temp as $$
declare
  found record;
  joined jsonb;
begin
  select array_agg(state.step_slug) filter (where kept.is_large) as large,
         array_agg(state.step_slug) as slugs,
         jsonb_object_agg(state.step_slug, state.output) filter (where not kept.is_large) as small
    into found
    from pgflow.deps as dep
    join pgflow.step_states as state
      on state.run_id = _deps_output.run_id and state.step_slug = dep.dep_slug
   cross join lateral (select pgflow._is_large(state.output)) as kept (is_large)
   where dep.flow_slug = _deps_output.flow_slug and dep.step_slug = _deps_output.step_slug
     and state.status = 'completed';
  if found.large is null then
    return coalesce(found.small, '{}');
  end if;
  joined := pgflow._join_outputs(_deps_output.run_id, found.slugs);
  if joined is null then
    raise exception 'the input of step % would be larger than 256 MB, the most that jsonb holds',
      _deps_output.step_slug using errcode = 'program_limit_exceeded',
      column = _deps_output.step_slug,
      hint = 'let these steps return less: ' || array_to_string(found.slugs, ', ');
  end if;
  return joined;
end $$;
