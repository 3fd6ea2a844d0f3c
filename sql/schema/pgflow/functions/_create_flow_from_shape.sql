-- _create_flow_from_shape(p_flow_slug, p_shape): creates the flow and its steps, with options.
-- Options that the shape leaves out get their defaults; "flowType" (flow or job) is our addition.
-- Steps come in topological order, as with add_step, which also judges those that exist already. All are
-- written at once: a look-up for each of them would be planned while the table is empty, and read all steps
-- before it.
-- Called by: ensure_flow_compiled.   Locks: the flow's definition (pgflowd._lock_definition).
create or replace function pgflow._create_flow_from_shape(p_flow_slug text, p_shape jsonb)
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  options constant jsonb := coalesce(p_shape -> 'options', '{}');
  first_index int;
  wrong record;
begin
  perform pgflow.create_flow(
    p_flow_slug, (options ->> 'maxAttempts')::int, (options ->> 'baseDelay')::int,
    (options ->> 'timeout')::int);
  if p_shape ? 'flowType' then
    update pgflow.flows as flow set flow_type = p_shape ->> 'flowType'
     where flow.flow_slug = p_flow_slug;
  end if;

  select step.value ->> 'slug' as slug, dep.slug as dep into wrong
    from jsonb_array_elements(p_shape -> 'steps') with ordinality as step (value, nr)
   cross join lateral jsonb_array_elements_text(
           coalesce(nullif(step.value -> 'dependencies', 'null'), '[]')) as dep (slug)
    left join jsonb_array_elements(p_shape -> 'steps') with ordinality as known (value, nr)
      on known.value ->> 'slug' = dep.slug and known.nr < step.nr
   where known.nr is null limit 1;
  if found then
    raise foreign_key_violation using
      message = format('step %s of flow %s depends on %s, and no step before it has that name',
                       wrong.slug, p_flow_slug, wrong.dep),
      schema = 'pgflow', table = 'deps', constraint = 'deps_flow_slug_dep_slug_fkey';
  end if;

  select coalesce(max(known.step_index) + 1, 0) into first_index
    from pgflow.steps as known where known.flow_slug = p_flow_slug;
  if first_index > 0 then
    perform pgflow.add_step(p_flow_slug, known.step_slug, array(select jsonb_array_elements_text(
              coalesce(nullif(step -> 'dependencies', 'null'), '[]'))))
       from jsonb_array_elements(p_shape -> 'steps') as step
       join pgflow.steps as known
         on known.flow_slug = p_flow_slug and known.step_slug = step ->> 'slug';
  end if;

  insert into pgflow.steps (
    flow_slug, step_slug, step_type, step_index, deps_count, opt_max_attempts, opt_base_delay,
    opt_timeout, opt_start_delay, required_input_pattern, forbidden_input_pattern,
    when_unmet, when_exhausted)
  select p_flow_slug, step.value ->> 'slug', coalesce(step.value ->> 'stepType', 'single'),
         first_index + step.nr - 1,
         (select count(distinct dep) from jsonb_array_elements_text(
            coalesce(nullif(step.value -> 'dependencies', 'null'), '[]')) as dep),
         (step.value #>> '{options,maxAttempts}')::int, (step.value #>> '{options,baseDelay}')::int,
         (step.value #>> '{options,timeout}')::int, (step.value #>> '{options,startDelay}')::int,
         case when (step.value #>> '{requiredInputPattern,defined}')::boolean
              then step.value #> '{requiredInputPattern,value}' end,
         case when (step.value #>> '{forbiddenInputPattern,defined}')::boolean
              then step.value #> '{forbiddenInputPattern,value}' end,
         coalesce(step.value ->> 'whenUnmet', 'skip'),
         coalesce(step.value ->> 'whenExhausted', 'fail')
    from jsonb_array_elements(p_shape -> 'steps') with ordinality as step (value, nr)
  on conflict on constraint steps_pkey do nothing;

  insert into pgflow.deps (flow_slug, dep_slug, step_slug)
  select distinct p_flow_slug, dep, step.value ->> 'slug'
    from jsonb_array_elements(p_shape -> 'steps') as step
   cross join lateral jsonb_array_elements_text(
           coalesce(nullif(step.value -> 'dependencies', 'null'), '[]')) as dep
  on conflict do nothing;

  select step.value ->> 'slug' as slug, step.value -> 'dependencies' as deps into wrong
    from jsonb_array_elements(p_shape -> 'steps') as step
   where step.value ->> 'stepType' = 'map'
     and (select count(distinct dep) from jsonb_array_elements_text(
            coalesce(nullif(step.value -> 'dependencies', 'null'), '[]')) as dep) > 1 limit 1;
  if found then
    raise exception 'Map step "%" can have at most one dependency, but % were provided: %',
      wrong.slug, jsonb_array_length(wrong.deps),
      (select string_agg(dep, ', ') from jsonb_array_elements_text(wrong.deps) as dep);
  end if;
end $$;
