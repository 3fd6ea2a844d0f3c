-- run_progress(run_id): returns what the running tasks of a run have told of their progress. Of steps with
-- more than a hundred tasks it returns none, so that it costs the same however large a map is: there the
-- number of tasks that are completed tells enough.
-- Called by: commands, _listed_runs, run_steps.   Locks: nothing.
create or replace function pgflowd.run_progress(run_id uuid)
returns table (step_slug text, task_index int, attempt int, progress jsonb)
language sql stable set search_path = '', pg_temp as $$
  select open.step_slug, open.task_index, open.attempt, open.progress
    from pgflow.step_states as state
   cross join lateral (
     select one.run_id, one.step_slug, one.task_index, one.attempt, one.progress
       from pgflowd.attempts as one
      where one.run_id = state.run_id and one.step_slug = state.step_slug
        and one.ended_at is null and one.progress is not null offset 0) as open
   cross join lateral (
     select from pgflow.step_tasks as task
      where task.run_id = open.run_id and task.step_slug = open.step_slug
        and task.task_index = open.task_index and task.status = 'started'
        and task.attempts_count = open.attempt offset 0) as task
   where state.run_id = run_progress.run_id and state.status = 'started'
     and state.initial_tasks <= 100
   order by open.step_slug, open.task_index;
$$;
