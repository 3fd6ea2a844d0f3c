-- _report_all(reports, outputs): record all elements of a report at once, whatever their runs
-- and flows: a fixed number of statements for completions and failures, however many. Whatever
-- raises, raises; and a report that names a task twice is left to _report_singly.
-- Called by: report.   Locks: runs ascending, tasks ascending; then as _complete_tasks and
-- _fail_tasks; attempts. Step states change only under the lock of their run.
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
  perform from pgflow.runs as run
    where run.run_id in (select element.run_id from unnest(elements) as element)
    order by run.run_id for no key update;
  perform from unnest(elements) as element
    join pgflow.step_tasks as task
      on task.run_id = element.run_id and task.step_slug = element.step_slug
     and task.task_index = element.task_index
    order by task.run_id, task.step_slug, task.task_index for no key update of task;
  elements := pgflowd._judged(elements);
  if exists (select from unnest(elements) as element where element.hold) then
    perform pgflowd._hold_all(elements);
  end if;

  select array_agg(element.run_id) as run_ids,
         array_agg(element.step_slug) as step_slugs,
         array_agg(element.task_index) as task_indexes,
         array_agg(results[element.ord]) as outputs,
         array_agg(element.ord) as ords
    into done
    from unnest(elements) as element
   where element.outcome = 'completed' and element.standing in ('live', 'late');
  if done.ords is not null then
    select array_agg((done.ords[task.ord], null, task.status, null, null)::pgflowd.answer)
      into became
      from pgflow._complete_tasks(done.run_ids, done.step_slugs, done.task_indexes, done.outputs)
           as task;
  end if;
  if exists (select from unnest(elements) as element
              where element.outcome <> 'completed' and element.standing in ('live', 'late')) then
    became := became || pgflowd._fail_all(elements) || pgflowd._put_back_all(elements);
  end if;
  return query select * from pgflowd._close_all(elements, became, results);
end $$;
