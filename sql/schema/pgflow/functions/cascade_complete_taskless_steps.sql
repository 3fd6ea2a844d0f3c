-- cascade_complete_taskless_steps(run_id): completes ready steps without tasks, level by level:
-- in a chain of maps each empty one empties the next. Returns how many were completed. A step
-- that the level before made ready, and whose condition is not met, is left to
-- cascade_resolve_conditions.
-- Called by: _resolve_steps, pgflowd._advance.   Locks: the run, then states.
create or replace function pgflow.cascade_complete_taskless_steps(run_id uuid)
returns int language plpgsql set search_path = '', pg_temp as $$
#variable_conflict use_column
declare
  the_run constant uuid := cascade_complete_taskless_steps.run_id;
  completed text[];
  total int := 0;
begin
  perform from pgflow.runs as run
    where run.run_id = the_run and run.status = 'started' for no key update;
  if not found then
    return 0;
  end if;

  for round in 1 .. 50 loop
    with done as (
      update pgflow.step_states as state
         set status = 'completed', started_at = greatest(pgflow._moment(), state.created_at),
             completed_at = greatest(pgflow._moment(), state.created_at), remaining_tasks = 0,
             output = case when step.step_type = 'map' then '[]'::jsonb end
        from pgflow.steps as step
       where state.run_id = the_run and state.status = 'created' and state.remaining_deps = 0
         and state.initial_tasks = 0
         and step.flow_slug = state.flow_slug and step.step_slug = state.step_slug
         and (coalesce(step.required_input_pattern, step.forbidden_input_pattern) is null
              or state.step_slug not in (select unmet.step_slug from pgflow._unmet_steps(the_run) as unmet))
      returning state.step_slug, step.step_index
    )
    select array_agg(done.step_slug order by done.step_index) into completed from done;
    if completed is null then
      return total;
    end if;

    total := total + cardinality(completed);
    update pgflow.runs as run set remaining_steps = run.remaining_steps - cardinality(completed)
     where run.run_id = the_run;
    perform pgflow._send_step_events(array_fill(the_run, array[cardinality(completed)]), completed);
    perform pgflow._count_down(array_fill(the_run, array[cardinality(completed)]), completed);
  end loop;
  raise exception 'Cascade loop exceeded safety limit of 50 iterations'
    using hint = 'A chain of empty map steps is deeper than 49; shorten it.';
end $$;
