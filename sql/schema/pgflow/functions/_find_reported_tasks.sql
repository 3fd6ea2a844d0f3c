-- _find_reported_tasks(run_ids, step_slugs, task_indexes): returns the task of each report, by
-- position, and as `effect` what the report does: `act` (it counts), `late` (the step had ended
-- before; the message is archived), `run_failed`, or `ignore` (the task is not started).
-- `offset 0` keeps each look-up one by the whole key, even if the tables were empty when the
-- plan was made.
-- Called by: _complete_tasks, _fail_tasks.   Locks: nothing (runs are locked already).
create or replace function pgflow._find_reported_tasks(
  run_ids uuid[], step_slugs text[], task_indexes int[])
returns table (ord int, flow_slug text, run_id uuid, step_slug text, task_index int,
               message_id bigint, attempts_count int, task_status text, effect text)
language sql stable
begin atomic
  select given.ord::int, task.flow_slug, given.run_id, given.step_slug, given.task_index,
         task.message_id, task.attempts_count, task.status,
         case when run.status = 'failed' then 'run_failed'
              when state.status <> 'started' then 'late'
              when task.status = 'started' then 'act'
              else 'ignore' end
    from unnest(run_ids, step_slugs, task_indexes)
           with ordinality as given (run_id, step_slug, task_index, ord)
   cross join lateral (
     select one.flow_slug, one.message_id, one.attempts_count, one.status
       from pgflow.step_tasks as one
      where one.run_id = given.run_id and one.step_slug = given.step_slug
        and one.task_index = given.task_index
     offset 0) as task
   cross join lateral (
     select one.status from pgflow.step_states as one
      where one.run_id = given.run_id and one.step_slug = given.step_slug
     offset 0) as state
   cross join lateral (
     select one.status from pgflow.runs as one where one.run_id = given.run_id offset 0) as run;
end;
