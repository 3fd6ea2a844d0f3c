-- _sweep_unleased(stale_threshold, max_tasks): queues started tasks again that have no lease of
-- ours, because a worker of upstream's claimed them, `stale_threshold` after their timeout.
-- Returns how many were queued again, and how many given up.
-- Called by: sweep.   Locks: see _sweep_unleased_task.
create or replace function pgflowd._sweep_unleased(
  stale_threshold interval, max_tasks int, out recovered int, out given_up int)
language plpgsql set search_path = '', pg_temp as $$
declare
  stale record;
  became text;
begin
  recovered := 0;
  given_up := 0;
  for stale in
    select task.*, run.status = 'failed' as run_failed
      from pgflowd._started_tasks(null) as started
     cross join lateral (
       select one.run_id, one.step_slug, one.task_index, one.flow_slug, one.started_at
         from pgflow.step_tasks as one
        where one.run_id = started.run_id and one.step_slug = started.step_slug
          and one.task_index = started.task_index and one.status = 'started'
          and one.started_at < now() - _sweep_unleased.stale_threshold offset 0) as task
      join pgflow.runs as run on run.run_id = task.run_id
      join pgflow.step_states as state
        on state.run_id = task.run_id and state.step_slug = task.step_slug
      join pgflow.flows as flow on flow.flow_slug = task.flow_slug
      join pgflow.steps as step
        on step.flow_slug = task.flow_slug and step.step_slug = task.step_slug
     where (run.status = 'failed' or (run.status = 'started' and state.status = 'started'))
       and task.started_at < now() - _sweep_unleased.stale_threshold
             - make_interval(secs => coalesce(step.opt_timeout, flow.opt_timeout))
       and not pgflowd._is_leased(task.run_id, task.step_slug, task.task_index)
     limit _sweep_unleased.max_tasks
  loop
    became := pgflowd._sweep_unleased_task(
      stale.run_id, stale.step_slug, stale.task_index, stale.started_at, stale.run_failed);
    case became
      when 'recovered' then recovered := recovered + 1;
      when 'given_up' then given_up := given_up + 1;
      else null;  -- locked, or claimed meanwhile, or its run has failed
    end case;
  end loop;
end $$;
