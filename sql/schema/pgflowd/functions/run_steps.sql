-- run_steps(run_id): returns each step of a run for operators: its place in the flow, its tasks by
-- status, and of the started tasks the attempt, its limits and since when, but for what a person does,
-- since no timeout ends that. A queued task that waits counts as waiting only. `next_at` is when the
-- first of its queued tasks may be claimed, or the first wait is over at the latest. Of a step that
-- failed `attempts` has those that were made: the core counts all as used up where a handler wants no
-- further one. `share` is how much of its tasks is done, where that is known, and `progress` what the
-- running ones told last. It reads no output: a row that is passed on as a whole would bring its own
-- along.
-- Called by: commands.   Locks: nothing.
create or replace function pgflowd.run_steps(run_id uuid)
returns table (step_slug text, step_type text, deps text[], tasks int, queued int, running int,
               completed int, failed int, attempts int, max_attempts int, timeout_s int,
               running_since timestamptz, next_at timestamptz, waiting int, share float8,
               progress jsonb)
language sql stable set search_path = '' as $$
  select step.step_slug, step.step_type,
         array(select dep.dep_slug from pgflow.deps as dep
                where dep.flow_slug = step.flow_slug and dep.step_slug = step.step_slug
                order by dep.dep_slug),
         count(task.task_index)::int,
         count(*) filter (where task.status = 'queued')::int - waiting.tasks,
         count(*) filter (where task.status = 'started')::int,
         count(*) filter (where task.status = 'completed')::int,
         count(*) filter (where task.status = 'failed')::int,
         coalesce(max(task.attempts_count) filter (where task.status in ('queued', 'started')),
                  case when state.status = 'failed' and count(task.task_index) = 1 then (
                    select kept.attempt from pgflowd.attempts as kept
                     where kept.run_id = run_steps.run_id and kept.step_slug = step.step_slug
                       and kept.task_index = 0 and kept.ended_at is not null
                     order by kept.token desc limit 1) end,
                  max(task.attempts_count), 0),
         coalesce(step.opt_max_attempts, flow.opt_max_attempts),
         coalesce(step.opt_timeout, flow.opt_timeout),
         min(coalesce(attempt.started_at, task.started_at))
           filter (where task.status = 'started' and not pgflowd._is_person(attempt.worker_id)),
         least((select min(message.visible_at)
                  from pgflowd._visible_at(
                         min(task.queue_name),
                         array_agg(task.message_id) filter (where task.status = 'queued'))
                       as message),
               waiting.due_at),
         waiting.tasks,
         case when state.status in ('completed', 'skipped') then 1
              when state.initial_tasks > 0
                then (count(*) filter (where task.status = 'completed') + coalesce(told.shares, 0))
                     / state.initial_tasks
              else 0 end,
         told.last
    from pgflow.runs as run
    join pgflow.flows as flow on flow.flow_slug = run.flow_slug
    join pgflow.steps as step on step.flow_slug = run.flow_slug
    left join lateral (
      select one.run_id, one.step_slug, one.task_index, one.status, one.attempts_count, one.started_at,
             one.message_id,
             case when one.status = 'queued' then pgflowd._task_queue(one) end as queue_name
        from pgflow.step_tasks as one
       where one.run_id = run.run_id and one.step_slug = step.step_slug offset 0) as task on true
    left join pgflowd.attempts as attempt
      on attempt.run_id = task.run_id and attempt.step_slug = task.step_slug
     and attempt.task_index = task.task_index and attempt.ended_at is null
     and attempt.attempt = task.attempts_count and task.status = 'started'
   cross join lateral (
     select count(*)::int as tasks, min(wait.due_at) as due_at from pgflowd.waits as wait
      where wait.run_id = run.run_id and wait.step_slug = step.step_slug) as waiting
    left join pgflow.step_states as state
      on state.run_id = run.run_id and state.step_slug = step.step_slug
    left join (
      select one.step_slug, sum(pgflowd._share(one.progress)) as shares,
             (array_agg(one.progress order by one.progress ->> 'at' desc))[1] as last
        from pgflowd.run_progress(run_steps.run_id) as one group by one.step_slug) as told
      on told.step_slug = step.step_slug
   where run.run_id = run_steps.run_id
   group by step.flow_slug, step.step_slug, step.step_type, step.step_index, waiting.tasks,
            waiting.due_at, step.opt_max_attempts, step.opt_timeout, flow.opt_max_attempts,
            flow.opt_timeout, state.status, state.initial_tasks, told.shares, told.last
   order by step.step_index;
$$;
