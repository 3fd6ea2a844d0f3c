-- _report_all(elements, outputs): records elements of distinct tasks on a foreign core, one by
-- one, in order of run, step and index. It catches no error. Returns an answer for each. What waits
-- in a run or step that has ended waits no longer; on our own core _close_tasks sees to that.
-- Called by: _fail_unstarted, report, _report_alone, _report_singly.
-- Locks: all runs ascending; then for each element its step state, its task, and as _pass_to_core
-- and _close_attempts; waits.
create or replace function pgflowd._report_all(elements pgflowd.element[], outputs jsonb[])
returns pgflowd.answer[] language plpgsql set search_path = '', pg_temp
set plan_cache_mode = force_generic_plan as $$
declare
  element pgflowd.element;
  judged pgflowd.element[];
  answers pgflowd.answer[];
begin
  perform from pgflow.runs as run
   where run.run_id in (select one.run_id from unnest(elements) as one)
   order by run.run_id for update;
  for element in
    select * from unnest(elements) as one order by one.run_id, one.step_slug, one.task_index
  loop
    perform from pgflow.step_states as state
       join pgflow.step_tasks as task
         on task.run_id = state.run_id and task.step_slug = state.step_slug
      where state.run_id = element.run_id and state.step_slug = element.step_slug
        and task.task_index = element.task_index
        for update of state for no key update of task;
    judged := pgflowd._with_standings(array[element]);
    answers := answers || pgflowd._close_attempts(
      judged, pgflowd._pass_to_core(judged, outputs), outputs);
  end loop;
  perform pgflowd._forget_waits(array(select one.run_id from unnest(elements) as one));
  return answers;
end $$;
