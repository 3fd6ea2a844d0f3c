-- _task_statuses(run_ids, step_slugs, task_indexes): returns the status of each task, by
-- position; no row where there is no such task.
-- Called by: _complete_tasks, _fail_tasks.   Locks: nothing.
create or replace function pgflow._task_statuses(
  run_ids uuid[], step_slugs text[], task_indexes int[])
returns table (ord int, run_id uuid, step_slug text, task_index int, status text)
language sql stable
begin atomic
  select given.ord::int, task.run_id, task.step_slug, task.task_index, task.status
    from unnest(run_ids, step_slugs, task_indexes)
           with ordinality as given (run_id, step_slug, task_index, ord)
    join pgflow.step_tasks as task
      on task.run_id = given.run_id and task.step_slug = given.step_slug
     and task.task_index = given.task_index;
end;
