-- _report_all(elements, outputs): records elements of distinct tasks at once, of any runs and
-- flows: a fixed number of statements for completions and failures, however many. It catches no
-- error. Returns an answer for each, whose verdict is what the task became (`completed`, `queued`,
-- `failed`); `repeated`: this very report was recorded before; `late`: run or step had ended;
-- `lost`, with PF001, or PF002 when there is no such task.
-- `offset 0` keeps each look-up one by the whole key, where a plan could read a whole run; and
-- a task is looked up by what its run's lock returned, or a plan could lock it before its run.
-- Called by: _fail_unstarted, report, _report_alone, _report_singly.
-- Locks: each run with its tasks, ascending; then as _pass_to_core and _close_attempts. No
-- transaction that holds a task of a run without the run waits, so runs may be locked while tasks
-- of lesser ones are held. States change only with their run.
create or replace function pgflowd._report_all(elements pgflowd.element[], outputs jsonb[])
returns pgflowd.answer[] language plpgsql set search_path = '', pg_temp as $$
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
  return pgflowd._close_attempts(elements, pgflowd._pass_to_core(elements, outputs), outputs);
end $$;
