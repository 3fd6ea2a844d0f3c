-- run_steps(run_id): returns each step of a run for operators: its place in the flow, its tasks by
-- status, and of the started tasks the attempt, its limits and since when, but for what a person does,
-- since no timeout ends that. A queued task that waits counts as waiting only. `next_at` is when the
-- first of its queued tasks may be claimed, or the first wait is over at the latest. Of a step that
-- failed `attempts` has those that were made: the core counts all as used up where a handler wants no
-- further one. `share` is how much of its tasks is done, where that is known, and `progress` what the
-- running ones told last. The tasks are counted at once, and only then are attempts and messages looked up:
-- those of a thousand tasks of a step that run, and of a thousand that are queued. It reads no output: a
-- row that is passed on as a whole would bring its own along.
-- Called by: commands.   Locks: nothing.
create or replace function pgflowd.run_steps(run_id uuid)
returns table (step_slug text, step_type text, deps text[], tasks int, queued int, running int,
               completed int, failed int, attempts int, max_attempts int, timeout_s int,
               running_since timestamptz, next_at timestamptz, waiting int, share float8,
               progress jsonb)
language sql stable set search_path = '', pg_temp as $$
  with counted as materialized (
    select one.step_slug, count(*)::int as tasks,
           count(*) filter (where one.status = 'queued')::int as queued,
           count(*) filter (where one.status = 'started')::int as started,
           count(*) filter (where one.status = 'completed')::int as completed,
           count(*) filter (where one.status = 'failed')::int as failed,
           max(one.attempts_count) filter (where one.status in ('queued', 'started')) as open_attempts,
           max(one.attempts_count) as attempts,
           min(one.task_index) filter (where one.status = 'queued') as first_queued,
           (array_agg(one.message_id) filter (where one.status = 'queued'))[1:1000] as messages,
           (array_agg(one.task_index) filter (where one.status = 'started'))[1:1000] as at_work
      from pgflow.step_tasks as one
     where one.run_id = run_steps.run_id
     group by one.step_slug)
  select step.step_slug, step.step_type,
         array(select dep.dep_slug from pgflow.deps as dep
                where dep.flow_slug = step.flow_slug and dep.step_slug = step.step_slug
                order by dep.dep_slug),
         coalesce(task.tasks, 0), coalesce(task.queued, 0) - waiting.tasks, coalesce(task.started, 0),
         coalesce(task.completed, 0), coalesce(task.failed, 0),
         coalesce(task.open_attempts,
                  case when state.status = 'failed' and task.tasks = 1 then (
                    select kept.attempt from pgflowd.attempts as kept
                     where kept.run_id = run_steps.run_id and kept.step_slug = step.step_slug
                       and kept.task_index = 0 and kept.ended_at is not null
                     order by kept.token desc limit 1) end,
                  task.attempts, 0),
         coalesce(step.opt_max_attempts, flow.opt_max_attempts),
         coalesce(step.opt_timeout, flow.opt_timeout),
         running.since,
         least(case when task.queued > 0 then (
                 select min(message.visible_at)
                   from pgflow.step_tasks as first
                  cross join lateral pgflowd._visible_at(
                    first.queue_name, task.messages) as message
                  where first.run_id = run.run_id and first.step_slug = step.step_slug
                    and first.task_index = task.first_queued) end,
               waiting.due_at),
         waiting.tasks,
         case when state.status in ('completed', 'skipped') then 1
              when state.initial_tasks > 0
                then (coalesce(task.completed, 0) + coalesce(told.shares, 0)) / state.initial_tasks
              else 0 end,
         told.last
    from pgflow.runs as run
    join pgflow.flows as flow on flow.flow_slug = run.flow_slug
    join pgflow.steps as step on step.flow_slug = run.flow_slug
    left join counted as task on task.step_slug = step.step_slug
   cross join lateral (
     select min(coalesce(held.started_at, one.started_at))
              filter (where not pgflowd._is_person(held.worker_id)) as since
       from unnest(task.at_work) as open (task_index)
      cross join lateral (
        select known.started_at, known.attempts_count from pgflow.step_tasks as known
         where known.run_id = run.run_id and known.step_slug = step.step_slug
           and known.task_index = open.task_index offset 0) as one
       left join lateral (
        select attempt.started_at, attempt.worker_id from pgflowd.attempts as attempt
         where attempt.run_id = run.run_id and attempt.step_slug = step.step_slug
           and attempt.task_index = open.task_index and attempt.ended_at is null
           and attempt.attempt = one.attempts_count
         order by attempt.token desc limit 1) as held on true) as running
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
   order by step.step_index;
$$;
