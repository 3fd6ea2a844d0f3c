-- fail_task(run_id, step_slug, task_index, error_message): records a failed attempt. Returns the
-- task as it is afterwards; no row when there is no such task.
-- Called by: pgflowd._give_up, pgflowd._recover_some, pgflowd._sweep_unleased_task; workers of
-- other runtimes.
-- Locks: run, states, tasks, messages.
create or replace function pgflow.fail_task(
  run_id uuid, step_slug text, task_index int, error_message text)
returns setof pgflow.step_tasks language plpgsql set search_path = '', pg_temp as $$
begin
  perform from pgflow.runs as run where run.run_id = fail_task.run_id for no key update;
  perform pgflow._fail_tasks(
    array[fail_task.run_id], array[fail_task.step_slug],
    array[fail_task.task_index], array[fail_task.error_message]);
  return query select task.* from pgflow.step_tasks as task
    where task.run_id = fail_task.run_id and task.step_slug = fail_task.step_slug
      and task.task_index = fail_task.task_index;
end $$;
