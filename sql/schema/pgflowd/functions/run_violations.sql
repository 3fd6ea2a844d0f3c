-- run_violations(run_ids, max_rows): returns I2 to I5, I8 to I10, I15, I19, I20, I22 and I24 of these runs; `violations` says
-- what the numbers mean.
-- Older cores keep no output of steps, so there is no I4. Workers of other runtimes have no leases,
-- and history may be off, so I9 and I10 say "at most". Each run is looked up by its key, whatever
-- the statistics say, so the cost is that of the runs named.
-- Called by: violations; `pgflowd doctor`.   Locks: nothing.
create or replace function pgflowd.run_violations(run_ids uuid[], max_rows int default 20)
returns table (invariant text, flow_slug text, run_id uuid, step_slug text, task_index int,
               detail text)
language plpgsql stable set search_path = '', pg_temp
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off
  set enable_mergejoin = off set cpu_tuple_cost = 1 set cpu_index_tuple_cost = 1
  set jit = off as $$
#variable_conflict use_column
begin
  return query
    select 'I2', run.flow_slug, run.run_id, state.step_slug, null::int,
           format('the run is completed, the step %s', state.status)
      from pgflow.runs as run
      join pgflow.step_states as state on state.run_id = run.run_id
     where run.run_id = any (run_ids) and run.status = 'completed'
       and (run.remaining_steps <> 0 or state.status not in ('completed', 'skipped')
            or coalesce(state.remaining_tasks, 0) <> 0)
     limit max_rows;
  return query
    select 'I3', state.flow_slug, state.run_id, state.step_slug, null::int,
           format('%s of %s tasks are completed', counted.completed, state.initial_tasks)
      from pgflow.step_states as state
     cross join lateral (
       select count(*) as tasks, coalesce(max(task.task_index), -1) as last_index,
              count(*) filter (where task.status = 'completed') as completed
         from pgflow.step_tasks as task
        where task.run_id = state.run_id and task.step_slug = state.step_slug) as counted
     where state.run_id = any (run_ids) and state.status = 'completed'
       and (counted.completed <> state.initial_tasks or counted.tasks <> state.initial_tasks
            or counted.last_index <> state.initial_tasks - 1)
     limit max_rows;
  return query
    select 'I4', state.flow_slug, state.run_id, state.step_slug, null::int,
           'the output of the map is not the list of its tasks'' outputs'
      from (select one.* from pgflow.step_states as one
             where one.run_id = any (run_ids) and one.status = 'completed' offset 0) as state
      join pgflow.steps as step
        on step.flow_slug = state.flow_slug and step.step_slug = state.step_slug
     where step.step_type = 'map'
       and state.output is distinct from (
         select coalesce(to_jsonb(array_agg(task.output order by task.task_index)), '[]')
           from pgflow.step_tasks as task
          where task.run_id = state.run_id and task.step_slug = state.step_slug)
     limit max_rows;
  return query
    select 'I5', task.flow_slug, lost.run_id, lost.step_slug, lost.task_index,
           'the task is queued and its message is gone; the sweeper sends another one'
      from pgflowd._without_message(run_ids) as lost
      join pgflow.step_tasks as task using (run_id, step_slug, task_index)
     limit max_rows;
  return query
    select 'I8', task.flow_slug, task.run_id, task.step_slug, task.task_index,
           case when task.status = 'failed' then 'failed without a text'
                else 'recovery gave it up, and its run waits for ever' end
      from pgflow.runs as run
      join pgflow.step_tasks as task on task.run_id = run.run_id
     where run.run_id = any (run_ids)
       and (task.status = 'failed' and coalesce(task.error_message, '') = ''
            or task.status = 'started' and run.status = 'started'
               and task.permanently_stalled_at is not null)
     limit max_rows;
  return query
    select 'I8', state.flow_slug, state.run_id, state.step_slug, null::int,
           'the step failed before its attempts were used up'
      from (select one.* from pgflow.step_states as one
             where one.run_id = any (run_ids) and one.status = 'failed' offset 0) as state
      join pgflow.steps as step
        on step.flow_slug = state.flow_slug and step.step_slug = state.step_slug
      join pgflow.flows as flow on flow.flow_slug = state.flow_slug
     where coalesce(state.error_message, '')
           !~ '^(Condition not met|cancelled by |\[TYPE_VIOLATION\]|stalled)'
       and not exists (select from pgflow.step_tasks as task
                        where task.run_id = state.run_id and task.step_slug = state.step_slug
                          and task.status = 'failed' and task.attempts_count
                              >= coalesce(step.opt_max_attempts, flow.opt_max_attempts))
       and not exists (select from pgflowd.attempts as attempt
                        where attempt.run_id = state.run_id and attempt.step_slug = state.step_slug
                          and attempt.outcome = 'stalled')
     limit max_rows;
  return query
    select 'I9', task.flow_slug, task.run_id, task.step_slug, task.task_index,
           format('%s leases are live', count(*))
      from pgflow.runs as run
      join pgflow.step_tasks as task on task.run_id = run.run_id
      join pgflowd.attempts as attempt
        on attempt.run_id = task.run_id and attempt.step_slug = task.step_slug
       and attempt.task_index = task.task_index
     where run.run_id = any (run_ids) and run.status = 'started'
       and task.status = 'started' and attempt.ended_at is null
       and attempt.attempt = task.attempts_count
       and attempt.worker_id = coalesce(task.last_worker_id, attempt.worker_id)
     group by task.flow_slug, task.run_id, task.step_slug, task.task_index having count(*) > 1
     limit max_rows;
  return query
    select 'I10', task.flow_slug, task.run_id, task.step_slug, task.task_index,
           format('the task is %s, and was completed %s times', task.status, count(*))
      from pgflow.step_tasks as task
      join pgflowd.attempts as attempt
        on attempt.run_id = task.run_id and attempt.step_slug = task.step_slug
       and attempt.task_index = task.task_index
     where task.run_id = any (run_ids) and attempt.outcome = 'completed'
     group by task.flow_slug, task.run_id, task.step_slug, task.task_index, task.status
    having count(*) > 1 or task.status <> 'completed'
     limit max_rows;
  return query
    select 'I15', wait.flow_slug, wait.run_id, wait.step_slug, wait.task_index,
           format('the task waits; it is %s, its step %s, its run %s',
                  task.status, state.status, run.status)
      from pgflowd.waits as wait
      join pgflow.step_tasks as task using (run_id, step_slug, task_index)
      join pgflow.step_states as state using (run_id, step_slug)
      join pgflow.runs as run using (run_id)
     where wait.run_id = any (run_ids)
       and (task.status <> 'queued' or state.status <> 'started' or run.status <> 'started')
     limit max_rows;
  return query
    select 'I15', wait.flow_slug, wait.run_id, wait.step_slug, wait.task_index,
           'the task waits for the end of runs, and none of them is left'
      from pgflowd.waits as wait
     where wait.run_id = any (run_ids) and wait.kind = 'runs' and wait.due_at is null
       and not exists (select from pgflowd.awaits as one
                        where one.run_id = wait.run_id and one.step_slug = wait.step_slug
                          and one.task_index = wait.task_index)
     limit max_rows;
  return query
    select 'I15', wait.flow_slug, wait.run_id, wait.step_slug, wait.task_index,
           case when ours.paused_at is null then 'the task waits for a resume, and its run is not paused'
                else 'the run is paused, and the time of a wait goes on' end
      from pgflowd.waits as wait
      left join pgflowd.runs as ours on ours.run_id = wait.run_id
     where wait.run_id = any (run_ids)
       and case when ours.paused_at is null then wait.kind = 'paused' or wait.rest is not null
                else wait.due_at > now() end
     limit max_rows;
  return query
    select 'I24', attempt.flow_slug, attempt.run_id, attempt.step_slug, attempt.task_index,
           format('the lease of attempt %s lapsed %s s ago, and it is open', attempt.token,
                  floor(extract(epoch from now() - attempt.lease_until)))
      from pgflowd.attempts as attempt
     where attempt.run_id = any (run_ids) and attempt.ended_at is null
       and attempt.lease_until < now() - interval '10 minutes'
       and exists (select from pgflowd.sweepers as sweeper
                    where sweeper.sleeps_until > now() - interval '5 minutes')
     limit max_rows;
  return query select violation.* from pgflowd._undo_violations(run_ids, max_rows) as violation;
  return query
    select 'I20', run.flow_slug, given.run_id, given.step_slug, given.task_index,
           format('the task was given %s signals %L, and %s of its checkpoints have one',
                  given.signals, given.name, kept.signals)
      from (select signal.run_id, signal.step_slug, signal.task_index, signal.name,
                   count(*) as signals
              from pgflowd.signals as signal
             where signal.run_id = any (run_ids) and signal.consumed_at is not null
             group by signal.run_id, signal.step_slug, signal.task_index, signal.name) as given
      join pgflow.runs as run on run.run_id = given.run_id
     cross join lateral (
       select count(*) as signals
         from pgflowd.checkpoints as checkpoint
        where checkpoint.run_id = given.run_id and checkpoint.step_slug = given.step_slug
          and checkpoint.task_index = given.task_index and checkpoint.data ? 'got'
          and starts_with(checkpoint.name, format('signal %s ', given.name))
          and substr(checkpoint.name, length(format('signal %s ', given.name)) + 1) ~ '^\d+$')
           as kept
     where given.signals <> kept.signals
     limit max_rows;
end $$;
