-- _hold(task, attempt): makes the task look as its attempt left it, so that the core accepts the
-- report: started by this worker, at the attempt's time.
-- Called by: _report_one.   Locks: nothing new; the caller holds the task.
create or replace function pgflowd._hold(task pgflow.step_tasks, attempt pgflowd.attempts)
returns void language plpgsql set search_path = '' as $$
begin
  if task.status = 'started' and task.started_at = attempt.started_at
     and attempt.started_at <= now() then
    return;
  end if;
  update pgflow.step_tasks as known
     set status = 'started', last_worker_id = attempt.worker_id,
         started_at = greatest(least(attempt.started_at, now()), task.queued_at)
   where known.run_id = task.run_id and known.step_slug = task.step_slug
     and known.task_index = task.task_index;
end $$;
