-- _start_runs(flow_slug, inputs, run_ids): starts runs of any flow. Steps that can start at once are
-- inserted as started; runs whose root steps have conditions, or whose root map is empty, go through
-- the general pipeline. Raises for a flow that is unknown, or whose root map gets no array.
-- Called by: start_flows.   Locks: the new rows.
create or replace function pgflow._start_runs(flow_slug text, inputs jsonb[], run_ids uuid[])
returns void language plpgsql set search_path = '', pg_temp as $$
#variable_conflict use_column
declare
  shape record;
  started_runs uuid[];
  started_steps text[];
  unsettled uuid[];
  an_id uuid;
begin
  select coalesce(array_agg(step.step_slug order by step.step_index), '{}') as steps,
         array_agg(step.deps_count order by step.step_index) as deps,
         array_agg(step.step_type order by step.step_index) as types,
         bool_or(step.deps_count = 0 and step.step_type = 'map') as root_maps,
         coalesce(bool_or(step.deps_count = 0
                          and (step.required_input_pattern is not null
                               or step.forbidden_input_pattern is not null)), false) as conditions
    into shape from pgflow.steps as step where step.flow_slug = _start_runs.flow_slug;
  if shape.root_maps then
    perform pgflow._check_map_input(_start_runs.flow_slug, given.input)
       from unnest(inputs) as given (input);
  end if;

  insert into pgflow.runs as run (run_id, flow_slug, input, remaining_steps)
  select fresh.run_id, _start_runs.flow_slug, fresh.input, cardinality(shape.steps)
    from unnest(_start_runs.run_ids, inputs) as fresh (run_id, input);

  with root as (
    select fresh.run_id, fresh.ord, step.step_slug, step.deps_count,
           case when step.step_type = 'single' then 1
                when step.deps_count = 0 then jsonb_array_length(fresh.input) end as task_count,
           step.deps_count = 0 and not shape.conditions
           and (not shape.root_maps or jsonb_array_length(fresh.input) > 0) as ready
      from unnest(_start_runs.run_ids, inputs) with ordinality as fresh (run_id, input, ord),
           unnest(shape.steps, shape.deps, shape.types) as step (step_slug, deps_count, step_type)
  ), made as (
    insert into pgflow.step_states as state (
      flow_slug, run_id, step_slug, remaining_deps, initial_tasks, status, remaining_tasks, started_at)
    select _start_runs.flow_slug, root.run_id, root.step_slug, root.deps_count, root.task_count,
           case when root.ready then 'started' else 'created' end,
           case when root.ready then root.task_count end,
           case when root.ready then now() end
      from root
    returning state.step_slug
  )
  select array_agg(root.run_id order by root.ord, root.step_slug) filter (where root.ready),
         array_agg(root.step_slug order by root.ord, root.step_slug) filter (where root.ready),
         array_agg(distinct root.run_id) filter (where root.deps_count = 0 and not root.ready)
    into started_runs, started_steps, unsettled
    from root where exists (select from made);

  perform pgflow._send_run_events(_start_runs.run_ids);
  if started_runs is not null then
    perform pgflow._send_step_events(started_runs, started_steps);
    perform pgflow._create_tasks(started_runs, started_steps);
  end if;
  foreach an_id in array coalesce(unsettled, '{}') loop
    if pgflow._resolve_steps(an_id) then
      perform pgflow.start_ready_steps(an_id);
    end if;
  end loop;
  if unsettled is not null or started_runs is null then
    perform pgflow._complete_runs(_start_runs.run_ids, array_fill(0, array[cardinality(_start_runs.run_ids)]));
  end if;
end $$;
