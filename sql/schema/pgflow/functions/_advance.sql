-- _advance(run_ids, step_slugs): does what follows when steps have completed or been skipped:
-- dependents count down, conditions and empty maps are settled where there are any, ready steps
-- start, finished runs complete. One statement each, however many runs there are; only runs with
-- a condition or an empty map are walked one by one.
-- Called by: _complete_tasks, _exhaust_step.   Locks: states by slug (runs are locked already).
create or replace function pgflow._advance(run_ids uuid[], step_slugs text[])
returns void language plpgsql set search_path = '', pg_temp as $$
#variable_conflict use_column
declare
  ended_runs uuid[];
  ended_counts int[];
  ready_runs uuid[];
  ready_steps text[];
  unsettled uuid[];
  an_id uuid;
begin
  select counted.ready_runs, counted.ready_steps, counted.unsettled
    into ready_runs, ready_steps, unsettled
    from pgflow._count_down(_advance.run_ids, _advance.step_slugs) as counted;

  if unsettled is null and ready_runs is not null then
    perform pgflow._start_steps(ready_runs, ready_steps);
  elsif unsettled is not null then
    select array_agg(ready.run_id), array_agg(ready.step_slug) into ready_runs, ready_steps
      from unnest(ready_runs, ready_steps) as ready (run_id, step_slug)
     where ready.run_id <> all (unsettled);
    if ready_runs is not null then
      perform pgflow._start_steps(ready_runs, ready_steps);
    end if;
    foreach an_id in array unsettled loop
      if pgflow._resolve_steps(an_id) then
        perform pgflow.start_ready_steps(an_id);
      end if;
    end loop;
  end if;

  select array_agg(ended.run_id), array_agg(ended.steps) into ended_runs, ended_counts
    from (select one.run_id, count(*)::int as steps from unnest(_advance.run_ids) as one (run_id)
           group by one.run_id) as ended;
  perform pgflow._complete_runs(ended_runs, ended_counts);
end $$;
