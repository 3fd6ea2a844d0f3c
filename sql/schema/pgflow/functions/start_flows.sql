-- start_flows(flow_slug, inputs, run_ids): starts one run for each input, all at once.
-- Steps that can start at once are inserted as started; only a flow whose root steps have
-- conditions, and a run whose root map is empty, go through the general pipeline. The steps are
-- listed once, so a step that is added meanwhile is in none of the runs.
-- Called by: start_flow, start_flow_with_states; clients.
-- Locks: the flow against deletion (_lock_starts), the new rows.
create or replace function pgflow.start_flows(
  flow_slug text, inputs jsonb[], run_ids uuid[] default null)
returns setof pgflow.runs language plpgsql set search_path = '', pg_temp as $$
#variable_conflict use_column
declare
  shape record;
  new_ids uuid[];
  unsettled uuid[];
  started_runs uuid[];
  started_steps text[];
  an_id uuid;
begin
  perform pgflow._lock_starts(start_flows.flow_slug);
  select coalesce(array_agg(step.step_slug order by step.step_index), '{}') as steps,
         array_agg(step.deps_count order by step.step_index) as deps,
         array_agg(step.step_type order by step.step_index) as types,
         bool_or(step.deps_count = 0 and step.step_type = 'map') as root_maps,
         bool_or(step.deps_count = 0 and step.opt_start_delay > 0) as delays,
         coalesce(bool_or(step.deps_count = 0
                          and (step.required_input_pattern is not null
                               or step.forbidden_input_pattern is not null)), false) as conditions
    into shape from pgflow.steps as step where step.flow_slug = start_flows.flow_slug;
  if shape.root_maps then
    perform pgflow._check_map_input(start_flows.flow_slug, given.input)
       from unnest(inputs) as given (input);
  end if;
  new_ids := array(
    select coalesce(given.run_id, gen_random_uuid())
      from rows from (unnest(inputs), unnest(start_flows.run_ids)) with ordinality
             as given (input, run_id, ord)
     where given.ord <= cardinality(inputs) order by given.ord);
  if cardinality(new_ids) = 0 then
    return;
  end if;

  insert into pgflow.runs as run (run_id, flow_slug, input, remaining_steps)
  select fresh.run_id, start_flows.flow_slug, fresh.input, cardinality(shape.steps)
    from unnest(new_ids, inputs) as fresh (run_id, input);

  with root as (
    select fresh.run_id, fresh.ord, step.step_slug, step.deps_count,
           case when step.step_type = 'single' then 1
                when step.deps_count = 0 then jsonb_array_length(fresh.input) end as task_count,
           step.deps_count = 0 and not shape.conditions
           and (not shape.root_maps or jsonb_array_length(fresh.input) > 0) as ready
      from unnest(new_ids, inputs) with ordinality as fresh (run_id, input, ord),
           unnest(shape.steps, shape.deps, shape.types) as step (step_slug, deps_count, step_type)
  ), made as (
    insert into pgflow.step_states as state (
      flow_slug, run_id, step_slug, remaining_deps, initial_tasks, status, remaining_tasks, started_at)
    select start_flows.flow_slug, root.run_id, root.step_slug, root.deps_count, root.task_count,
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

  perform pgflow._send_run_events(new_ids);
  if started_runs is not null then
    perform pgflow._send_step_events(started_runs, started_steps);
    if shape.root_maps or shape.delays then
      perform pgflow._create_tasks(started_runs, started_steps);
    else
      perform pgflow._send_tasks(start_flows.flow_slug, 0, started_runs, started_steps,
                                 array_fill(0, array[cardinality(started_runs)]));
    end if;
  end if;
  foreach an_id in array coalesce(unsettled, '{}') loop
    if pgflow._resolve_steps(an_id) then
      perform pgflow.start_ready_steps(an_id);
    end if;
  end loop;
  if unsettled is not null or started_runs is null then
    perform pgflow._complete_runs(new_ids, array_fill(0, array[cardinality(new_ids)]));
  end if;
  return query select run.* from unnest(new_ids) with ordinality as fresh (run_id, ord)
                 join pgflow.runs as run on run.run_id = fresh.run_id order by fresh.ord;
end $$;
