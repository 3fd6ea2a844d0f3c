-- start_flows(flow_slug, inputs, run_ids): starts one run for each input, in one go.
-- Steps that can start at once are inserted as started; only a flow whose root steps have
-- conditions, and a run whose root map is empty, go through the general pipeline. The steps are
-- listed once, so that one which is added meanwhile is in none of the runs.
-- Called by: start_flow, clients.   Locks: the flow against deletion (_lock_starts), the new rows.
create or replace function pgflow.start_flows(
  flow_slug text, inputs jsonb[], run_ids uuid[] default null)
returns setof pgflow.runs language plpgsql set search_path = '', pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
  new_ids uuid[];
  unsettled uuid[];
  started_runs uuid[];
  started_steps text[];
  the_steps text[];
  an_id uuid;
begin
  perform pgflow._lock_starts(start_flows.flow_slug);
  the_steps := array(
    select step.step_slug from pgflow.steps as step where step.flow_slug = start_flows.flow_slug);
  perform pgflow._check_map_input(start_flows.flow_slug, given.input)
     from unnest(inputs) as given (input);

  with made as (
    insert into pgflow.runs as run (run_id, flow_slug, input, remaining_steps)
    select coalesce(given.run_id, gen_random_uuid()), start_flows.flow_slug, given.input,
           cardinality(the_steps)
      from unnest(inputs, start_flows.run_ids) with ordinality as given (input, run_id, ord)
     order by given.ord
    returning run.run_id
  )
  select array_agg(made.run_id) into new_ids from made;
  if new_ids is null then
    return;
  end if;

  with root as (
    select run.run_id, step.step_slug, step.deps_count,
           case when step.step_type = 'single' then 1
                when step.deps_count = 0 then jsonb_array_length(run.input) end as task_count,
           coalesce(step.required_input_pattern, step.forbidden_input_pattern) is not null as conditional
      from unnest(new_ids) as fresh (run_id)
     cross join lateral (
       select one.run_id, one.input from pgflow.runs as one where one.run_id = fresh.run_id
       offset 0) as run
      join pgflow.steps as step
        on step.flow_slug = start_flows.flow_slug and step.step_slug = any (the_steps)
  ), judged as materialized (
    select root.*, bool_or(root.deps_count = 0 and (root.conditional or root.task_count = 0))
                     over (partition by root.run_id) as held
      from root
  ), made as (
    insert into pgflow.step_states as state (
      flow_slug, run_id, step_slug, remaining_deps, initial_tasks, status, remaining_tasks, started_at)
    select start_flows.flow_slug, judged.run_id, judged.step_slug, judged.deps_count, judged.task_count,
           case when ready.yes then 'started' else 'created' end,
           case when ready.yes then judged.task_count end,
           case when ready.yes then now() end
      from judged, lateral (select judged.deps_count = 0 and not judged.held) as ready (yes)
    returning state.run_id, state.step_slug, state.status, state.remaining_deps
  )
  select array_agg(made.run_id order by made.run_id, made.step_slug) filter (where made.status = 'started'),
         array_agg(made.step_slug order by made.run_id, made.step_slug) filter (where made.status = 'started'),
         array_agg(distinct made.run_id) filter (where made.status = 'created' and made.remaining_deps = 0)
    into started_runs, started_steps, unsettled
    from made;

  perform pgflow._send_run_events(new_ids);
  if started_runs is not null then
    perform pgflow._send_step_events(started_runs, started_steps);
    perform pgflow._create_tasks(started_runs, started_steps);
  end if;
  foreach an_id in array coalesce(unsettled, '{}') loop
    if pgflow._settle_steps(an_id) then
      perform pgflow.start_ready_steps(an_id);
    end if;
  end loop;
  if unsettled is not null or started_runs is null then
    perform pgflow._settle_runs(new_ids, array_fill(0, array[cardinality(new_ids)]));
  end if;
  return query select run.* from unnest(new_ids) with ordinality as fresh (run_id, ord)
                 join pgflow.runs as run on run.run_id = fresh.run_id order by fresh.ord;
end $$;
