-- analyze_and_create_flow(p_flow_slug, p_options, p_steps): deploys a flow, as ensure_flow_compiled, whose
-- answer it returns. The options are `max_attempts`, `base_delay`, `timeout` and `flow_type`; a step has
-- `slug`, `deps`, `step_type` and numbers of its own, named as the parameters of add_step.
-- Called by: workers of other runtimes.   Locks: the flow's definition (pgflowd._lock_definition).
create or replace function pgflow.analyze_and_create_flow(
  p_flow_slug text, p_options jsonb, p_steps jsonb)
returns jsonb language sql set search_path = '', pg_temp as $$
  select pgflow.ensure_flow_compiled(p_flow_slug, jsonb_strip_nulls(jsonb_build_object(
    'flowType', p_options -> 'flow_type',
    'options', jsonb_build_object(
      'maxAttempts', p_options -> 'max_attempts', 'baseDelay', p_options -> 'base_delay',
      'timeout', p_options -> 'timeout'),
    'steps', (
      select coalesce(jsonb_agg(jsonb_build_object(
               'slug', step.it -> 'slug', 'stepType', coalesce(step.it ->> 'step_type', 'single'),
               'dependencies', (
                 select coalesce(jsonb_agg(dep order by dep collate "C"), '[]')
                   from jsonb_array_elements_text(
                     coalesce(nullif(step.it -> 'deps', 'null'), '[]')) as dep),
               'requiredInputPattern', jsonb_build_object('defined', false),
               'forbiddenInputPattern', jsonb_build_object('defined', false),
               'options', (
                 select jsonb_object_agg(known.name, step.it -> substr(known.field, 5))
                   from pgflowd._options() as known where starts_with(known.field, 'opt_')))
             order by step.nr), '[]')
        from jsonb_array_elements(p_steps) with ordinality as step (it, nr)))));
$$;
