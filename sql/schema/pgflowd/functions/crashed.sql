-- crashed(worker_id, reason, max_tasks): this worker is dead, and its processes are reaped: give
-- back what it held, visible at once, no attempt spent. Returns the number given back.
-- A task whose attempts stalled `crash_limit` times in a row is failed for good instead.
-- Called by: the sweeper.   Locks: tasks, skipping locked ones; attempts; queue rows, skipping;
-- the run of a task that is given up, unless it is locked.
create or replace function pgflowd.crashed(worker_id uuid, reason text, max_tasks int default 500)
returns int language plpgsql set search_path = '' as $$
declare
  held record;
begin
  select array_agg(free.run_id) as run_ids,
         array_agg(free.step_slug) as step_slugs,
         array_agg(free.task_index) as task_indexes
    into held
    from (select task.run_id, task.step_slug, task.task_index
            from pgflowd._started_tasks(crashed.worker_id) as started
            join pgflow.step_tasks as task using (run_id, step_slug, task_index)
           where task.status = 'started' and task.last_worker_id = crashed.worker_id
           limit crashed.max_tasks
             for no key update of task skip locked) as free;
  return pgflowd._recover(held.run_ids, held.step_slugs, held.task_indexes,
                          coalesce(crashed.reason, 'its worker died'), false);
end $$;
