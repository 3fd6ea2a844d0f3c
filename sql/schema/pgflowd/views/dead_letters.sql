-- dead_letters: the tasks that have failed for good, and their runs with them, with the last attempt
-- that is kept, and its number: the core counts all attempts as used up where a handler wants no further
-- one. Those of cancelled runs, of runs that expired and of those that are undone are none.
-- `pgflowd.list_dead` is short, whatever there is.
create or replace view pgflowd.dead_letters as
  select task.run_id, task.step_slug, task.task_index, task.flow_slug,
         coalesce(last.attempt, task.attempts_count) as attempts, last.token, last.outcome,
         last.error_type,
         coalesce(last.error_message, task.error_message) as error_message, last.traceback,
         coalesce(last.ended_at, task.failed_at) as failed_at, run.started_at as run_started_at
    from pgflow.runs as run
    join pgflow.step_states as state on state.run_id = run.run_id and state.status = 'failed'
    join pgflow.step_tasks as task
      on task.run_id = state.run_id and task.step_slug = state.step_slug and task.status = 'failed'
    left join lateral (
      select attempt.token, attempt.outcome, attempt.error_type, attempt.error_message,
             attempt.traceback, attempt.ended_at, attempt.attempt
        from pgflowd.attempts as attempt
       where attempt.run_id = task.run_id and attempt.step_slug = task.step_slug
         and attempt.task_index = task.task_index and attempt.ended_at is not null
       order by attempt.token desc limit 1) as last on true
   where run.status = 'failed' and not exists (
     select from pgflowd.runs as ended
      where ended.run_id = run.run_id
        and (ended.cancelled_at is not null or ended.undo_state in ('wanted', 'undoing', 'undone')));
