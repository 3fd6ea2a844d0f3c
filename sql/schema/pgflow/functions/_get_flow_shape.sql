-- _get_flow_shape(p_flow_slug): returns the flow as a shape, without options; an unknown flow has
-- no steps.
-- Called by: ensure_flow_compiled.   Locks: nothing.
create or replace function pgflow._get_flow_shape(p_flow_slug text)
returns jsonb language sql stable set search_path = '', pg_temp as $$
  select jsonb_build_object('steps', coalesce(jsonb_agg(jsonb_build_object(
           'slug', step.step_slug,
           'stepType', step.step_type,
           'dependencies', (select coalesce(jsonb_agg(dep.dep_slug order by dep.dep_slug), '[]')
                              from pgflow.deps as dep
                             where dep.flow_slug = step.flow_slug
                               and dep.step_slug = step.step_slug),
           'requiredInputPattern', pgflow._pattern_shape(step.required_input_pattern),
           'forbiddenInputPattern', pgflow._pattern_shape(step.forbidden_input_pattern)
         ) || (select jsonb_object_agg(known.name, to_jsonb(step) -> known.field)
                 from pgflowd._options() as known where known.is_mode)
           order by step.step_index), '[]'))
    from pgflow.steps as step
   where step.flow_slug = p_flow_slug;
$$;
