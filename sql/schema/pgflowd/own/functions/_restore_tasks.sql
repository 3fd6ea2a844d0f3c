-- _restore_tasks(elements): makes the tasks that need it look as their attempts left them; see _hold.
-- Called by: _report_all.   Locks: nothing new; the caller holds the tasks.
create or replace function pgflowd._restore_tasks(elements pgflowd.element[])
returns void language plpgsql set search_path = '' as $$
begin
  update pgflow.step_tasks as task
     set status = 'started', last_worker_id = attempt.worker_id,
         started_at = greatest(least(attempt.started_at, now()), task.queued_at)
    from unnest(_restore_tasks.elements) as element
    join pgflowd.attempts as attempt
      on attempt.run_id = element.run_id and attempt.step_slug = element.step_slug
     and attempt.task_index = element.task_index and attempt.token = element.token
   where element.hold
     and task.run_id = element.run_id and task.step_slug = element.step_slug
     and task.task_index = element.task_index;
end $$;
