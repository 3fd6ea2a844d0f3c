-- _report_all(reports, outputs): records all elements of a report at once, whatever their runs and
-- flows: a fixed number of statements for completions and failures, however many. It catches no
-- error; a report that names a task twice is left to _report_singly.
-- `offset 0` keeps each look-up one by the whole key, where a plan could read a whole run; and
-- a task is looked up by what its run's lock returned, or a plan could lock it before its run.
-- Called by: report.
-- Locks: each run with its tasks, ascending; then as _complete_tasks and _fail_tasks; attempts. No
-- transaction that holds a task of a run without the run waits, so runs may be locked while tasks
-- of lesser ones are held. States change only with their run.
create or replace function pgflowd._report_all(reports jsonb, outputs text[])
returns setof pgflowd.answer language plpgsql set search_path = ''
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off as $$
declare
  elements pgflowd.element[] := pgflowd._parse_reports(_report_all.reports);
  results jsonb[] := _report_all.outputs::jsonb[];
  became text[] := array_fill(null::text, array[cardinality(elements)]);
  done record;
  ended record;
begin
  perform from (select element.* from unnest(elements) as element
                 order by element.run_id, element.step_slug, element.task_index) as element
    cross join lateral (
      select one.run_id from pgflow.runs as one where one.run_id = element.run_id
      offset 0 for no key update) as run
    cross join lateral (
      select from pgflow.step_tasks as one
       where one.run_id = run.run_id and one.step_slug = element.step_slug
         and one.task_index = element.task_index
      offset 0 for no key update) as task;
  elements := pgflowd._with_standings(elements);
  select array_agg(element.run_id) filter (where element.outcome = 'completed') as run_ids,
         array_agg(element.step_slug) filter (where element.outcome = 'completed') as step_slugs,
         array_agg(element.task_index) filter (where element.outcome = 'completed') as task_indexes,
         array_agg(results[element.ord]) filter (where element.outcome = 'completed') as outputs,
         array_agg(element.ord) filter (where element.outcome = 'completed') as ords,
         bool_or(element.hold) as hold, bool_or(element.outcome <> 'completed') as others
    into done
    from unnest(elements) as element where element.standing in ('live', 'late');
  if done.hold then
    perform pgflowd._restore_tasks(elements);
  end if;
  if done.ords is not null then
    for ended in
      select reported.ord, reported.status
        from pgflow._complete_tasks(done.run_ids, done.step_slugs, done.task_indexes,
                                    done.outputs) as reported
    loop
      became[done.ords[ended.ord]] := ended.status;
    end loop;
  end if;
  if done.others then
    became := pgflowd._requeue_released(elements, pgflowd._fail_all(elements, became));
  end if;
  return query select * from pgflowd._close_attempts(elements, became, results);
end $$;
