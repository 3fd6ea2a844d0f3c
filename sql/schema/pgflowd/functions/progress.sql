-- progress(worker_id, tokens, told): stores what handlers have told of their progress, each by the token
-- of its attempt, and when; returns the tokens of those that are stored. Nothing is stored of an attempt
-- that has ended or whose lease is lost, or while another transaction has its task locked.
-- Called by: workers.   Locks: tasks, then their attempts, skipping locked tasks: it waits for nothing.
create or replace function pgflowd.progress(worker_id uuid, tokens bigint[], told jsonb[])
returns table (token bigint) language plpgsql set search_path = '', pg_temp as $$
#variable_conflict use_column
declare
  locked bigint[];
begin
  select array_agg(free.token) into locked
    from (select attempt.token
            from pgflowd.attempts as attempt
            join pgflow.step_tasks as task
              on task.run_id = attempt.run_id and task.step_slug = attempt.step_slug
             and task.task_index = attempt.task_index
           where attempt.token = any(progress.tokens) and attempt.worker_id = progress.worker_id
             and attempt.ended_at is null
             for no key update of task skip locked) as free;
  return query
  update pgflowd.attempts as attempt
     set progress = given.told || jsonb_build_object('at', clock_timestamp())
    from unnest(progress.tokens, progress.told) as given (token, told)
   where given.token = any(locked) and attempt.token = given.token
     and 'live' = (
       select pgflowd._lease_standing(task, attempt.*, run.status, state.status,
                                      pgflowd._is_cancelled(run.run_id))
         from pgflow.step_tasks as task
         join pgflow.runs as run on run.run_id = task.run_id
         join pgflow.step_states as state
           on state.run_id = task.run_id and state.step_slug = task.step_slug
        where task.run_id = attempt.run_id and task.step_slug = attempt.step_slug
          and task.task_index = attempt.task_index)
  returning attempt.token;
end $$;
