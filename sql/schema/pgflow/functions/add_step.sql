-- add_step(flow_slug, step_slug, deps_slugs, …): creates a step unless it exists, and returns it.
-- Its deps must exist already, so steps come in topological order. An existing step does not
-- change. Other deps for it are refused: its runs would count down from the wrong number.
-- Called by: _create_flow_from_shape; workers of other runtimes, applications.
-- Locks: the flow's definition (pgflowd._lock_definition).
create or replace function pgflow.add_step(
  flow_slug text, step_slug text, deps_slugs text[] default '{}', max_attempts int default null,
  base_delay int default null, timeout int default null, start_delay int default null,
  step_type text default 'single', required_input_pattern jsonb default null,
  forbidden_input_pattern jsonb default null, when_unmet text default 'skip',
  when_exhausted text default 'fail')
returns pgflow.steps language plpgsql set search_path = '', pg_temp as $$
#variable_conflict use_column
declare
  step pgflow.steps;
  deps constant text[] := array(select distinct dep from unnest(add_step.deps_slugs) as dep order by dep);
  known_deps text[];
begin
  if add_step.step_type = 'map' and cardinality(deps) > 1 then
    raise exception 'Map step "%" can have at most one dependency, but % were provided: %',
      add_step.step_slug, cardinality(deps), array_to_string(add_step.deps_slugs, ', ');
  end if;
  perform pgflowd._lock_definition(add_step.flow_slug);

  select * into step from pgflow.steps as known
   where known.flow_slug = add_step.flow_slug and known.step_slug = add_step.step_slug;
  if found then
    known_deps := array(select dep.dep_slug from pgflow.deps as dep
                         where dep.flow_slug = step.flow_slug and dep.step_slug = step.step_slug
                         order by dep.dep_slug);
    if known_deps <> deps then
      raise exception 'step % of flow % exists with other dependencies: {%}, not {%}',
                      step.step_slug, step.flow_slug, array_to_string(known_deps, ', '), array_to_string(deps, ', ')
        using errcode = 'object_not_in_prerequisite_state',
              hint = 'A changed flow needs a slug of its own, such as '
                     || add_step.flow_slug || '_2.';
    end if;
    return step;
  end if;

  insert into pgflow.steps as made (
    flow_slug, step_slug, step_type, step_index, deps_count, opt_max_attempts, opt_base_delay,
    opt_timeout, opt_start_delay, required_input_pattern, forbidden_input_pattern,
    when_unmet, when_exhausted)
  values (
    add_step.flow_slug, add_step.step_slug, coalesce(add_step.step_type, 'single'),
    (select coalesce(max(other.step_index) + 1, 0) from pgflow.steps as other
      where other.flow_slug = add_step.flow_slug),
    cardinality(deps), add_step.max_attempts, add_step.base_delay, add_step.timeout,
    add_step.start_delay, add_step.required_input_pattern, add_step.forbidden_input_pattern,
    add_step.when_unmet, add_step.when_exhausted)
  returning made.* into step;
  insert into pgflow.deps (flow_slug, dep_slug, step_slug)
  select add_step.flow_slug, dep, add_step.step_slug from unnest(deps) as dep;
  return step;
end $$;
