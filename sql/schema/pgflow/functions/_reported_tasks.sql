-- _reported_tasks(run_ids, step_slugs, task_indexes): what a report finds, by position: the
-- task, and `verdict`: `act` where the report counts, `late` where the step has ended before
-- (its message goes), `run_failed`, or `ignore` (the task is not started).
-- Called by: _complete_tasks, _fail_tasks.   Locks: nothing (runs are locked already).
create or replace function pgflow._reported_tasks(
  run_ids uuid[], step_slugs text[], task_indexes int[])
returns table (ord int, flow_slug text, run_id uuid, step_slug text, task_index int,
               message_id bigint, task_status text, verdict text)
language sql stable as $$
  select given.ord::int, task.flow_slug, task.run_id, task.step_slug, task.task_index,
         task.message_id, task.status,
         case when run.status = 'failed' then 'run_failed'
              when state.status <> 'started' then 'late'
              when task.status = 'started' then 'act'
              else 'ignore' end
    from unnest(run_ids, step_slugs, task_indexes)
           with ordinality as given (run_id, step_slug, task_index, ord)
    join pgflow.step_tasks as task
      on task.run_id = given.run_id and task.step_slug = given.step_slug
     and task.task_index = given.task_index
    join pgflow.step_states as state
      on state.run_id = given.run_id and state.step_slug = given.step_slug
    join pgflow.runs as run on run.run_id = given.run_id;
$$;
