-- complete_task(run_id, step_slug, task_index, output): records a result. Returns the task as it
-- is afterwards; no row when there is no such task.
-- Called by: workers of other runtimes.   Locks: run, states, tasks, messages.
create or replace function pgflow.complete_task(
  run_id uuid, step_slug text, task_index int, output jsonb)
returns setof pgflow.step_tasks language plpgsql set search_path = '', pg_temp as $$
begin
  perform from pgflow.runs as run where run.run_id = complete_task.run_id for no key update;
  perform pgflow._complete_tasks(
    array[complete_task.run_id], array[complete_task.step_slug],
    array[complete_task.task_index], array[complete_task.output]);
  return query select task.* from pgflow.step_tasks as task
    where task.run_id = complete_task.run_id and task.step_slug = complete_task.step_slug
      and task.task_index = complete_task.task_index;
end $$;
