-- flow_shape(flow_slug): the flow as a shape with the options that are in force, so that they can
-- be compared with the code's; null for an unknown flow. A step's unset options are left out.
-- Called by: `pgflowd check`, `flows`.   Locks: nothing.
create or replace function pgflowd.flow_shape(flow_slug text)
returns jsonb language sql stable set search_path = '' as $$
  select jsonb_build_object(
           'options', jsonb_build_object(
             'maxAttempts', flow.opt_max_attempts, 'baseDelay', flow.opt_base_delay,
             'timeout', flow.opt_timeout),
           'steps', coalesce((
             select jsonb_agg(told.step || jsonb_build_object('options', jsonb_strip_nulls(
                      jsonb_build_object(
                        'maxAttempts', known.opt_max_attempts, 'baseDelay', known.opt_base_delay,
                        'timeout', known.opt_timeout, 'startDelay', known.opt_start_delay)))
                    order by told.ord)
               from jsonb_array_elements(pgflow._get_flow_shape(flow.flow_slug) -> 'steps')
                    with ordinality as told (step, ord)
               join pgflow.steps as known
                 on known.flow_slug = flow.flow_slug
                and known.step_slug = told.step ->> 'slug'), '[]'))
    from pgflow.flows as flow
   where flow.flow_slug = flow_shape.flow_slug;
$$;
