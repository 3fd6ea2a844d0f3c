-- sweep_dead(worker_id, reason, max_tasks): queues again what a worker held whose processes have
-- ended and are reaped: visible at once, no attempt spent. A task whose attempts stalled
-- `crash_limit` times in a row is failed for good instead. Returns how many tasks were queued
-- again, and how many given up.
-- Called by: crashed; the sweeper.
-- Locks: tasks, skipping locked ones; attempts; queue rows, skipping; the run of a task that is
-- given up, unless it is locked.
create or replace function pgflowd.sweep_dead(
  worker_id uuid, reason text, max_tasks int default 500, out recovered int, out given_up int)
language plpgsql set search_path = '' as $$
declare
  held record;
begin
  select array_agg(free.run_id) as run_ids,
         array_agg(free.step_slug) as step_slugs,
         array_agg(free.task_index) as task_indexes
    into held
    from (select task.run_id, task.step_slug, task.task_index
            from pgflowd._started_tasks(sweep_dead.worker_id) as started
            join pgflow.step_tasks as task using (run_id, step_slug, task_index)
           where task.status = 'started' and task.last_worker_id = sweep_dead.worker_id
           limit sweep_dead.max_tasks
             for no key update of task skip locked) as free;
  select swept.recovered, swept.given_up into recovered, given_up
    from pgflowd._sweep_leased(held.run_ids, held.step_slugs, held.task_indexes,
                               coalesce(sweep_dead.reason, 'its worker died'), false) as swept;
end $$;
