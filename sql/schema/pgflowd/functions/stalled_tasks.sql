-- stalled_tasks(stale_threshold, max_tasks): returns the stalled tasks, oldest first: those whose lease
-- lapsed, those of workers without leases `stale_threshold` after their timeout, those that upstream's
-- recovery gave up, which stay started for ever, those queued without a message, and those in
-- quarantine. `times` counts how often in a row the task stalled before; of one in quarantine how often
-- at all. It reads the open runs that _open_runs finds; a message that is gone of another one the
-- sweeper sends again (resend).
-- Called by: _lock_stalled; commands.   Locks: nothing.
create or replace function pgflowd.stalled_tasks(
  stale_threshold interval default '60 s', max_tasks int default 500)
returns table (run_id uuid, step_slug text, task_index int, flow_slug text, worker_id uuid,
               attempt int, started_at timestamptz, stalled_at timestamptz, times int, reason text)
language sql stable set search_path = '', pg_temp as $$
  with open as materialized (
    select one.run_id from pgflowd._open_runs(null) as one (run_id)
     union
    select started.run_id from pgflowd._started_tasks(null) as started)
  select task.run_id, task.step_slug, task.task_index, task.flow_slug,
         coalesce(task.last_worker_id, held.worker_id),
         task.attempts_count, coalesce(held.started_at, task.started_at), judged.stalled_at,
         greatest(task.requeued_count,
                  pgflowd._stalled_in_a_row(task.run_id, task.step_slug, task.task_index)),
         case when given_up.at is not null then 'recovery gave it up'
              when held.token is not null then 'its lease lapsed'
              else 'its timeout has passed' end
    from open
    join pgflow.runs as run on run.run_id = open.run_id
    join pgflow.step_tasks as task on task.run_id = run.run_id and task.status = 'started'
    join pgflow.step_states as state
      on state.run_id = task.run_id and state.step_slug = task.step_slug
     and state.status = 'started'
    join pgflow.flows as flow on flow.flow_slug = task.flow_slug
    join pgflow.steps as step
      on step.flow_slug = task.flow_slug and step.step_slug = task.step_slug
    left join pgflowd.attempts as held
      on held.run_id = task.run_id and held.step_slug = task.step_slug
     and held.task_index = task.task_index and held.ended_at is null
     and held.attempt = task.attempts_count
     and held.worker_id = coalesce(task.last_worker_id, held.worker_id)
   cross join lateral (
     select task.permanently_stalled_at as at) as given_up
   cross join lateral (
     select coalesce(given_up.at, held.lease_until,
                     task.started_at + stalled_tasks.stale_threshold
                     + make_interval(secs => coalesce(step.opt_timeout, flow.opt_timeout)))
            as stalled_at) as judged
   where run.status = 'started' and judged.stalled_at < clock_timestamp()
   union all
  select task.run_id, task.step_slug, task.task_index, task.flow_slug, task.last_worker_id,
         task.attempts_count, null, task.queued_at, 0, 'its message is gone'
    from pgflowd._without_message(array(select open.run_id from open)) as lost
    join pgflow.step_tasks as task using (run_id, step_slug, task_index)
   union all
  select wait.run_id, wait.step_slug, wait.task_index, wait.flow_slug, null, task.attempts_count, null,
         wait.since, (
           select count(*)::int from pgflowd.attempts as attempt
            where attempt.run_id = wait.run_id and attempt.step_slug = wait.step_slug
              and attempt.task_index = wait.task_index and attempt.outcome = 'stalled'),
         'quarantined: ' || wait.why
    from pgflowd.waits as wait
    join pgflow.step_tasks as task using (run_id, step_slug, task_index)
   where wait.kind = 'quarantined'
   order by stalled_at
   limit stalled_tasks.max_tasks;
$$;
