-- start_flows(flow_slug, inputs, run_ids): starts one run for each input, all at once. Those of a flow
-- that says what each start has from its input go through pgflowd.start; one that has to wait for another
-- one's singleton key is not among the runs that are returned.
-- In a plain flow no root step is a map or has a condition or a delay: one statement inserts its runs,
-- states and tasks, root steps as started, and returns the runs. Other flows go through the general
-- pipeline (_start_runs), and so does one without steps. The steps are listed once, so a step that is
-- added meanwhile is in none of the runs.
-- Called by: pgflowd.start_runs, start_flow, start_flow_with_states, pgflowd._begin_first,
-- pgflowd._process_runs, pgflowd._start_undo; applications.   Locks: the flow against deletion
-- (_lock_starts), the new rows.
create or replace function pgflow.start_flows(
  flow_slug text, inputs jsonb[], run_ids uuid[] default null)
returns setof pgflow.runs language plpgsql set search_path = '', pg_temp as $$
#variable_conflict use_column
declare
  starts jsonb;
  shape record;
  new_ids uuid[];
  root_runs uuid[];
  root_steps text[];
  sent bigint[];
begin
  starts := pgflow._lock_starts(start_flows.flow_slug);
  select array_agg(step.step_slug) as steps, array_agg(step.deps_count) as deps,
         array_agg(case step.step_type when 'single' then 1 end) as tasks,
         array_agg(step.step_slug order by step.step_slug) filter (where step.deps_count = 0) as roots,
         bool_and(step.deps_count > 0
                  or step.step_type = 'single' and pgflow._start_delay(step) = 0
                     and step.required_input_pattern is null
                     and step.forbidden_input_pattern is null) as is_plain
    into shape from pgflow.steps as step where step.flow_slug = start_flows.flow_slug;
  if cardinality(inputs) = 1 then
    new_ids := array[coalesce(start_flows.run_ids[1], gen_random_uuid())];
  else
    new_ids := array(
      select coalesce(given.run_id, gen_random_uuid())
        from rows from (unnest(inputs), unnest(start_flows.run_ids)) with ordinality
               as given (input, run_id, ord)
       where given.ord <= cardinality(inputs) order by given.ord);
  end if;
  if cardinality(new_ids) = 0 then
    return;
  elsif starts is not null and pgflow._start_wished(start_flows.flow_slug, inputs, new_ids) then
    return query select run.* from unnest(new_ids) with ordinality as fresh (run_id, ord)
                   join pgflow.runs as run on run.run_id = fresh.run_id order by fresh.ord;
    return;
  elsif shape.is_plain is not true then
    perform pgflow._start_runs(start_flows.flow_slug, inputs, new_ids);
    return query select run.* from unnest(new_ids) with ordinality as fresh (run_id, ord)
                   join pgflow.runs as run on run.run_id = fresh.run_id order by fresh.ord;
    return;
  elsif cardinality(new_ids) = 1 then
    root_runs := array_fill(new_ids[1], array[cardinality(shape.roots)]);
    root_steps := shape.roots;
  else
    select array_agg(fresh.run_id order by fresh.ord, root.step_slug),
           array_agg(root.step_slug order by fresh.ord, root.step_slug)
      into root_runs, root_steps
      from unnest(new_ids) with ordinality as fresh (run_id, ord),
           unnest(shape.roots) as root (step_slug);
  end if;

  sent := pgflow._send_messages(start_flows.flow_slug, 0, root_runs, root_steps,
                                array_fill(0, array[cardinality(root_runs)]));
  return query
    with run as (
      insert into pgflow.runs as run (run_id, flow_slug, input, remaining_steps)
      select fresh.run_id, start_flows.flow_slug, fresh.input, cardinality(shape.steps)
        from unnest(new_ids, inputs) as fresh (run_id, input)
      returning run.*
    ), state as (
      insert into pgflow.step_states as state (
        flow_slug, run_id, step_slug, remaining_deps, initial_tasks, status, remaining_tasks, started_at)
      select start_flows.flow_slug, fresh.run_id, step.step_slug, step.deps_count, step.task_count,
             case step.deps_count when 0 then 'started' else 'created' end,
             case step.deps_count when 0 then 1 end, case step.deps_count when 0 then now() end
        from unnest(new_ids) as fresh (run_id),
             unnest(shape.steps, shape.deps, shape.tasks) as step (step_slug, deps_count, task_count)
    ), task as (
      insert into pgflow.step_tasks as task (flow_slug, run_id, step_slug, task_index, message_id)
      select start_flows.flow_slug, root.run_id, root.step_slug, 0, root.message_id
        from unnest(root_runs, root_steps, sent) as root (run_id, step_slug, message_id)
    )
    select run.* from run;
  if pgflow._followed(new_ids) <> '{}' then
    perform pgflow._send_run_events(new_ids);
    perform pgflow._send_step_events(root_runs, root_steps);
  end if;
end $$;
