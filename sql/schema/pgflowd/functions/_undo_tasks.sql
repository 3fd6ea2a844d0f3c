-- _undo_tasks(undo_run_id): returns each task that this run undoes, and how far that is: `open`, `undone` or
-- `failed`, with the error. What it had not undone when it ended has failed, too, unless an undo handler
-- returned all the same. A run that undoes nothing is not believed, whatever its id.
-- Called by: _end_undo, run_undos, _undo_plan.   Locks: nothing.
create or replace function pgflowd._undo_tasks(undo_run_id uuid)
returns table (step_slug text, task_index int, state text, error text)
language sql stable set search_path = '', pg_temp as $$
  select plan.step_slug, given.task_index::int,
         case when task.status = 'completed' and failure.message is null then 'undone'
              when task.status is distinct from 'completed' and run.status = 'started' then 'open'
              when returned.anything then 'undone'
              else 'failed' end,
         case when task.status = 'completed' and not returned.anything then failure.message end
    from pgflow.runs as run
   cross join lateral jsonb_each(run.input -> 'plan') as plan (step_slug, indexes)
   cross join lateral jsonb_array_elements_text(plan.indexes)
           with ordinality as given (task_index, nr)
    left join lateral (
      select one.status, one.output from pgflow.step_tasks as one
       where one.run_id = run.run_id and one.step_slug = 'undo_' || plan.step_slug
         and one.task_index = given.nr - 1 offset 0) as task on true
   cross join lateral (
      select case when jsonb_typeof(task.output -> '$undo_failed') = 'object'  -- as _settle_tasks writes it
                  then coalesce(task.output #>> '{$undo_failed,message}', '') end as message)
           as failure
   cross join lateral (
      select (task.status is distinct from 'completed' or failure.message is not null) and exists (
        select from pgflowd.attempts as attempt
         where attempt.run_id = run.run_id and attempt.step_slug = 'undo_' || plan.step_slug
           and attempt.task_index = given.nr - 1 and attempt.output is not null) as anything)
           as returned
   where run.run_id = _undo_tasks.undo_run_id
     and exists (select from pgflowd.runs as known
                  where known.run_id = run.run_id and known.undo_of is not null);
$$;
