-- _start_attempts(flow_slug, queue_name, step_slug, msg_ids, worker_id, began, lease, with_run,
-- are_limited, with_trace):
-- starts the tasks of these messages and opens an attempt for each, on a foreign core. The claim's read has
-- hidden the messages. The run's input comes with first steps, and with one task of each run whose step
-- is among `with_run`, unless it takes more than 64 kB as it is stored: claims stay small.
-- Called by: claim, _hold_task, _start_each.
-- Locks: tasks, skipping locked ones; then their attempts.
create or replace function pgflowd._start_attempts(
  flow_slug text, queue_name text, step_slug text, msg_ids bigint[], worker_id uuid,
  began timestamptz, lease interval, with_run text[], are_limited boolean default false,
  with_trace boolean default false)
returns setof pgflowd.claimed_task language plpgsql set search_path = '', pg_temp
set plan_cache_mode = force_generic_plan as $$
begin
  return query
  with begun as materialized (
    select task.*, coalesce(step.opt_timeout, flow.opt_timeout) as timeout,
           coalesce(step.opt_max_attempts, flow.opt_max_attempts) as max_attempts
      from pgflowd._start_tasks(_start_attempts.flow_slug, _start_attempts.queue_name, _start_attempts.step_slug,
                                _start_attempts.msg_ids, _start_attempts.worker_id) as task
      join pgflow.steps as step
        on step.flow_slug = _start_attempts.flow_slug and step.step_slug = task.step_slug
      join pgflow.flows as flow on flow.flow_slug = _start_attempts.flow_slug
  ), opened as (
    insert into pgflowd.attempts as lease (run_id, step_slug, task_index, flow_slug, worker_id,
                                           msg_id, attempt, lease_until)
    select begun.run_id, begun.step_slug, begun.task_index, _start_attempts.flow_slug, _start_attempts.worker_id,
           begun.msg_id, begun.attempt,
           _start_attempts.began + coalesce(_start_attempts.lease,
                              make_interval(secs => begun.timeout + 2))
      from begun order by begun.msg_id
    returning lease.run_id, lease.step_slug, lease.task_index, lease.token, lease.lease_until
  )
  select _start_attempts.flow_slug, begun.run_id, begun.step_slug, begun.input, begun.msg_id,
         begun.task_index,
         case when begun.flow_input is null and begun.step_slug = any (_start_attempts.with_run)
                   and begun.msg_id in (select min(one.msg_id) from begun as one
                                         where one.step_slug = any (_start_attempts.with_run)
                                         group by one.run_id)
              then (select run.input from pgflow.runs as run
                     where run.run_id = begun.run_id and pg_column_size(run.input) <= 65536)
              else begun.flow_input end,
         opened.token, begun.attempt, begun.max_attempts,
         begun.timeout, opened.lease_until, null::float8,
         case when _start_attempts.with_trace
                   and (exists (select from pgflowd.runs as ours
                                 where ours.run_id = begun.run_id offset 0)
                        or exists (select from pgflowd.attempts as before
                                    where before.run_id = begun.run_id
                                      and before.step_slug = begun.step_slug
                                      and before.task_index = begun.task_index offset 0))
              then pgflowd._trace_of(begun.run_id, begun.step_slug, begun.task_index, opened.token) end
    from begun
    join opened on opened.run_id = begun.run_id and opened.step_slug = begun.step_slug
               and opened.task_index = begun.task_index;
end $$;
