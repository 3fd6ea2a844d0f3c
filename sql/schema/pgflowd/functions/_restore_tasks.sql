-- _restore_tasks(elements): makes those tasks that no longer look as their attempts left them
-- look so again, so that the core accepts the reports: started by that worker, at the attempt's
-- time. Heartbeats move started_at, and a completion in an older transaction would then break
-- completed_at >= started_at. A task that was queued again and not claimed since starts again.
-- Called by: _pass_to_core.   Locks: nothing new; the caller holds the tasks.
create or replace function pgflowd._restore_tasks(elements pgflowd.element[])
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  update pgflow.step_tasks as task
     set status = 'started', last_worker_id = (
           select worker.worker_id from pgflow.workers as worker
            where worker.worker_id = attempt.worker_id),  -- its row may be deleted
         started_at = greatest(least(attempt.started_at, now()), task.queued_at)
    from unnest(_restore_tasks.elements) as element
    join pgflowd.attempts as attempt
      on attempt.run_id = element.run_id and attempt.step_slug = element.step_slug
     and attempt.task_index = element.task_index and attempt.token = element.token
   where element.is_moved
     and task.run_id = element.run_id and task.step_slug = element.step_slug
     and task.task_index = element.task_index;
end $$;
