-- _may_be_at_work(run_id): whether a handler of this run, which has ended, may still be executed: a
-- lease of it lives; or a worker of another runtime, which has none, has begun a task, and its timeout
-- has not passed. What a person has does not count.
-- Called by: _end_undo, _start_undo.   Locks: nothing.
create or replace function pgflowd._may_be_at_work(run_id uuid)
returns boolean language plpgsql stable set search_path = '', pg_temp as $$
begin
  return exists (
      select from pgflowd.attempts as attempt
       where attempt.run_id = _may_be_at_work.run_id and attempt.ended_at is null
         and attempt.lease_until > now() and not pgflowd._is_person(attempt.worker_id))
    or exists (
      select from pgflow.step_tasks as task
        join pgflow.steps as step
          on step.flow_slug = task.flow_slug and step.step_slug = task.step_slug
        join pgflow.flows as flow on flow.flow_slug = task.flow_slug
        left join pgflowd.runs as ours on ours.run_id = task.run_id
       where task.run_id = _may_be_at_work.run_id and task.started_at is not null
         and (task.status in ('started', 'skipped')
              or task.status = 'failed' and task.failed_at >= ours.cancelled_at)
         and task.started_at
             > now() - make_interval(secs => coalesce(step.opt_timeout, flow.opt_timeout))
         and not exists (
           select from pgflowd.attempts as attempt
            where attempt.run_id = task.run_id and attempt.step_slug = task.step_slug
              and attempt.task_index = task.task_index
              and attempt.attempt = task.attempts_count));
end $$;
