-- _recover_unleased(stale_threshold, max_tasks): give back started tasks that no lease of ours
-- holds, because a worker of upstream's claimed them, `stale_threshold` after their timeout.
-- Returns the number given back.
-- Called by: recover_stalled.   Locks: see _recover_one.
create or replace function pgflowd._recover_unleased(stale_threshold interval, max_tasks int)
returns int language plpgsql set search_path = '' as $$
declare
  stale record;
  given_back int := 0;
begin
  for stale in
    select task.*, run.status = 'failed' as run_failed
      from pgflowd._started_tasks(null) as started
     cross join lateral (
       select one.run_id, one.step_slug, one.task_index, one.flow_slug, one.started_at
         from pgflow.step_tasks as one
        where one.run_id = started.run_id and one.step_slug = started.step_slug
          and one.task_index = started.task_index and one.status = 'started'
          and one.started_at < now() - _recover_unleased.stale_threshold offset 0) as task
      join pgflow.runs as run on run.run_id = task.run_id
      join pgflow.step_states as state
        on state.run_id = task.run_id and state.step_slug = task.step_slug
      join pgflow.flows as flow on flow.flow_slug = task.flow_slug
      join pgflow.steps as step
        on step.flow_slug = task.flow_slug and step.step_slug = task.step_slug
     where (run.status = 'failed' or (run.status = 'started' and state.status = 'started'))
       and task.started_at < now() - _recover_unleased.stale_threshold
             - make_interval(secs => coalesce(step.opt_timeout, flow.opt_timeout))
       and not pgflowd._is_leased(task.run_id, task.step_slug, task.task_index)
     limit _recover_unleased.max_tasks
  loop
    given_back := given_back + pgflowd._recover_one(
      stale.run_id, stale.step_slug, stale.task_index, stale.started_at, stale.run_failed);
  end loop;
  return given_back;
end $$;
