-- violations(since, max_rows): returns each violation of an invariant, in runs that began within
-- `since`. A row is a bug, or a change of tables by hand. Numbered as in the design:
--   I2  a completed run is complete
--   I3  a completed step has exactly the tasks 0 to n-1, all completed
--   I4  a map's output is the array of its tasks' outputs, in order
--   I5  a task that may be claimed has its message
--   I6  a message has its open task
--   I7  the message of a completed task is no longer in the queue
--   I8  no task is given up silently, and none fails without a text
--   I9  a task has at most one live lease
--   I10 a task was completed once at most, and is completed then
-- Archives may be emptied by anybody, so I7 reads the queue. Older cores keep no output of
-- steps, so there is no I4. Workers of other runtimes have no leases, and history may be off, so
-- I9 and I10 say "at most".
-- Called by: `pgflowd doctor`.   Locks: nothing.
create or replace function pgflowd.violations(since interval default '1 day', max_rows int default 20)
returns table (invariant text, flow_slug text, run_id uuid, step_slug text, task_index int,
               detail text)
language plpgsql stable set search_path = '' as $$
#variable_conflict use_column
declare
  queue record;
begin
  return query
    select 'I2', run.flow_slug, run.run_id, state.step_slug, null::int,
           format('the run is completed, the step %s', state.status)
      from pgflow.runs as run
      join pgflow.step_states as state on state.run_id = run.run_id
     where run.status = 'completed' and run.started_at > now() - since
       and (run.remaining_steps <> 0 or state.status not in ('completed', 'skipped')
            or coalesce(state.remaining_tasks, 0) <> 0)
     limit max_rows;
  return query
    select 'I3', run.flow_slug, run.run_id, state.step_slug, null::int,
           format('%s of %s tasks are completed', counted.completed, state.initial_tasks)
      from pgflow.runs as run
      join pgflow.step_states as state on state.run_id = run.run_id
     cross join lateral (
       select count(*) as tasks, coalesce(max(task.task_index), -1) as last_index,
              count(*) filter (where task.status = 'completed') as completed
         from pgflow.step_tasks as task
        where task.run_id = state.run_id and task.step_slug = state.step_slug) as counted
     where state.status = 'completed' and run.started_at > now() - since
       and (counted.completed <> state.initial_tasks or counted.tasks <> state.initial_tasks
            or counted.last_index <> state.initial_tasks - 1)
     limit max_rows;
  return query
    select 'I4', run.flow_slug, run.run_id, state.step_slug, null::int,
           'the output of the map is not the list of its tasks'' outputs'
      from pgflow.runs as run
      join pgflow.step_states as state on state.run_id = run.run_id
      join pgflow.steps as step
        on step.flow_slug = state.flow_slug and step.step_slug = state.step_slug
     where step.step_type = 'map' and state.status = 'completed' and run.started_at > now() - since
       and to_jsonb(state) ? 'output'
       and to_jsonb(state) -> 'output' is distinct from (
         select coalesce(to_jsonb(array_agg(task.output order by task.task_index)), '[]')
           from pgflow.step_tasks as task
          where task.run_id = state.run_id and task.step_slug = state.step_slug)
     limit max_rows;
  for queue in
    select flow.flow_slug, known.queue_name, known.step_slug, tabled.oid
      from pgflow.flows as flow
     cross join lateral pgflowd._queues(flow.flow_slug) as known
     cross join lateral (select to_regclass(format(
       'pgmq.%I', pgmq.format_table_name(known.queue_name, 'q'))) as oid) as tabled
     order by flow.flow_slug
  loop
    return query select violation.*
      from pgflowd._queue_violations(queue.flow_slug, queue.queue_name, queue.oid, since, max_rows)
           as violation;
  end loop;
  return query
    select 'I8', task.flow_slug, task.run_id, task.step_slug, task.task_index,
           case when task.status = 'failed' then 'failed without a text'
                else 'recovery gave it up, and its run waits for ever' end
      from pgflow.runs as run
      join pgflow.step_tasks as task on task.run_id = run.run_id
     where run.started_at > now() - since
       and (task.status = 'failed' and coalesce(task.error_message, '') = ''
            or run.status = 'started' and to_jsonb(task) ->> 'permanently_stalled_at' is not null)
     limit max_rows;
  return query
    select 'I8', state.flow_slug, state.run_id, state.step_slug, null::int,
           'the step failed before its attempts were used up'
      from pgflow.runs as run
      join pgflow.step_states as state on state.run_id = run.run_id
      join pgflow.steps as step
        on step.flow_slug = state.flow_slug and step.step_slug = state.step_slug
      join pgflow.flows as flow on flow.flow_slug = state.flow_slug
     where state.status = 'failed' and run.started_at > now() - since
       and coalesce(state.error_message, '')
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
     where run.started_at > now() - since and run.status = 'started'
       and task.status = 'started' and attempt.ended_at is null
       and attempt.worker_id = task.last_worker_id and attempt.attempt = task.attempts_count
     group by task.flow_slug, task.run_id, task.step_slug, task.task_index having count(*) > 1
     limit max_rows;
  return query
    select 'I10', task.flow_slug, task.run_id, task.step_slug, task.task_index,
           format('the task is %s, and was completed %s times', task.status, count(*))
      from pgflow.runs as run
      join pgflow.step_tasks as task on task.run_id = run.run_id
      join pgflowd.attempts as attempt
        on attempt.run_id = task.run_id and attempt.step_slug = task.step_slug
       and attempt.task_index = task.task_index
     where run.started_at > now() - since and attempt.outcome = 'completed'
     group by task.flow_slug, task.run_id, task.step_slug, task.task_index, task.status
    having count(*) > 1 or task.status <> 'completed'
     limit max_rows;
end $$;
