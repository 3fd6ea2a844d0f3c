-- _cascade_force_skip_steps(run_id, step_slug, skip_reason): skips a step for the given reason,
-- and all steps downstream of it as dependency_skipped. Only steps that are created or started
-- change. Returns how many did; a second call changes nothing.
-- Called by: cascade_resolve_conditions, _exhaust_step.   Locks: run, states, tasks, messages.
create or replace function pgflow._cascade_force_skip_steps(
  run_id uuid, step_slug text, skip_reason text)
returns int language plpgsql set search_path = '', pg_temp as $$
#variable_conflict use_column
declare
  the_run constant uuid := _cascade_force_skip_steps.run_id;
  the_flow text;
  skipped text[];
  reasons text[];
begin
  select run.flow_slug into the_flow from pgflow.runs as run
   where run.run_id = the_run for no key update;
  if not found then
    raise exception 'Run not found: %', the_run;
  end if;

  with recursive downstream (step_slug) as (
    select _cascade_force_skip_steps.step_slug
     union
    select dep.step_slug from downstream
      join pgflow.deps as dep on dep.flow_slug = the_flow and dep.dep_slug = downstream.step_slug
  )
  select array_agg(state.step_slug order by step.step_index),
         array_agg(case when state.step_slug = _cascade_force_skip_steps.step_slug
                        then _cascade_force_skip_steps.skip_reason
                        else 'dependency_skipped' end order by step.step_index)
    into skipped, reasons
    from downstream
    join pgflow.step_states as state
      on state.run_id = the_run and state.step_slug = downstream.step_slug
    join pgflow.steps as step
      on step.flow_slug = the_flow and step.step_slug = downstream.step_slug
   where state.status in ('created', 'started');
  if skipped is null then
    return 0;
  end if;

  perform pgflow._skip_steps(the_run, skipped, reasons);
  update pgflow.runs as run set remaining_steps = run.remaining_steps - cardinality(skipped)
   where run.run_id = the_run;
  return cardinality(skipped);
end $$;
