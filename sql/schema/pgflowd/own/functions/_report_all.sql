-- _report_all(reports, outputs): record all elements of a report at once, whatever their runs
-- and flows: a fixed number of statements for completions and failures, however many. Whatever
-- raises, raises; and a report that names a task twice is left to _report_singly.
-- Called by: report.   Locks: each run with its tasks, ascending; then as _complete_tasks and
-- _fail_tasks; attempts. Nobody who holds a task of a run and not the run waits for anything,
-- so runs may be locked while tasks of lesser ones are held. States change only with their run.
create or replace function pgflowd._report_all(reports jsonb, outputs text[])
returns setof pgflowd.answer language plpgsql set search_path = ''
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off as $$
declare
  elements pgflowd.element[] := pgflowd._elements(_report_all.reports);
  results jsonb[] := _report_all.outputs::jsonb[];
  became pgflowd.answer[];
  done record;
begin
  perform from unnest(elements) as element
    join pgflow.runs as run on run.run_id = element.run_id
    join pgflow.step_tasks as task
      on task.run_id = element.run_id and task.step_slug = element.step_slug
     and task.task_index = element.task_index
    order by task.run_id, task.step_slug, task.task_index
      for no key update of run, task;
  elements := pgflowd._judged(elements);
  select array_agg(element.run_id) filter (where element.outcome = 'completed') as run_ids,
         array_agg(element.step_slug) filter (where element.outcome = 'completed') as step_slugs,
         array_agg(element.task_index) filter (where element.outcome = 'completed') as task_indexes,
         array_agg(results[element.ord]) filter (where element.outcome = 'completed') as outputs,
         array_agg(element.ord) filter (where element.outcome = 'completed') as ords,
         bool_or(element.hold) as hold, bool_or(element.outcome <> 'completed') as others
    into done
    from unnest(elements) as element where element.standing in ('live', 'late');
  if done.hold then
    perform pgflowd._hold_all(elements);
  end if;
  if done.ords is not null then
    select array_agg((done.ords[task.ord], null, task.status, null, null)::pgflowd.answer)
      into became
      from pgflow._complete_tasks(done.run_ids, done.step_slugs, done.task_indexes, done.outputs)
           as task;
  end if;
  if done.others then
    became := became || pgflowd._fail_all(elements) || pgflowd._put_back_all(elements);
  end if;
  return query select * from pgflowd._close_all(elements, became, results);
end $$;
