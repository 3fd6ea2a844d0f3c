-- _create_flow_from_shape(p_flow_slug, p_shape): creates the flow and its steps, with options.
-- Options that the shape leaves out get their defaults; "flowType" (flow or job) is our addition.
-- Called by: ensure_flow_compiled.   Locks: the flow's definition (pgflowd._lock_definition).
create or replace function pgflow._create_flow_from_shape(p_flow_slug text, p_shape jsonb)
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  options jsonb := coalesce(p_shape -> 'options', '{}');
  step jsonb;
begin
  perform pgflow.create_flow(
    p_flow_slug, (options ->> 'maxAttempts')::int, (options ->> 'baseDelay')::int,
    (options ->> 'timeout')::int);
  if p_shape ? 'flowType' then
    update pgflow.flows as flow set flow_type = p_shape ->> 'flowType'
     where flow.flow_slug = p_flow_slug;
  end if;

  for step in select one.value from jsonb_array_elements(p_shape -> 'steps') as one loop
    options := coalesce(step -> 'options', '{}');
    perform pgflow.add_step(
      flow_slug => p_flow_slug,
      step_slug => step ->> 'slug',
      deps_slugs => array(select jsonb_array_elements_text(
                            coalesce(nullif(step -> 'dependencies', 'null'), '[]'))),
      max_attempts => (options ->> 'maxAttempts')::int,
      base_delay => (options ->> 'baseDelay')::int,
      timeout => (options ->> 'timeout')::int,
      start_delay => (options ->> 'startDelay')::int,
      step_type => step ->> 'stepType',
      required_input_pattern => case when (step #>> '{requiredInputPattern,defined}')::boolean
                                     then step #> '{requiredInputPattern,value}' end,
      forbidden_input_pattern => case when (step #>> '{forbiddenInputPattern,defined}')::boolean
                                      then step #> '{forbiddenInputPattern,value}' end,
      when_unmet => coalesce(step ->> 'whenUnmet', 'skip'),
      when_exhausted => coalesce(step ->> 'whenExhausted', 'fail'));
  end loop;
end $$;
