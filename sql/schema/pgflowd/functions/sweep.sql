-- sweep(stale_threshold, max_tasks): queues stalled tasks again, and fails for good those that
-- stalled too often. Returns how many were queued again, and how many given up.
-- A task with a lease is stalled when the lease has lapsed; one of upstream's, which has none,
-- `stale_threshold` after its timeout. Tasks that upstream's own recovery gave up, which would
-- stay started for ever, are failed.
-- Called by: recover_stalled; the sweeper.
-- Locks: tasks, skipping locked ones; attempts; queue rows, skipping; runs of tasks given up,
-- unless locked.
create or replace function pgflowd.sweep(
  stale_threshold interval default '60 s', max_tasks int default 500,
  out recovered int, out given_up int)
language plpgsql set search_path = '' as $$
declare
  stalled record;
  unleased record;
begin
  select array_agg(free.run_id) as run_ids,
         array_agg(free.step_slug) as step_slugs,
         array_agg(free.task_index) as task_indexes
    into stalled
    from (select task.run_id, task.step_slug, task.task_index
            from pgflowd._started_tasks(null) as started
            join pgflow.step_tasks as task using (run_id, step_slug, task_index)
           where task.status = 'started'
             and exists (select from pgflowd.attempts as attempt
                          where attempt.run_id = task.run_id and attempt.step_slug = task.step_slug
                            and attempt.task_index = task.task_index and attempt.ended_at is null
                            and attempt.attempt = task.attempts_count
                            and attempt.worker_id = task.last_worker_id
                            and attempt.lease_until < clock_timestamp())
           limit sweep.max_tasks
             for no key update of task skip locked) as free;
  select swept.recovered, swept.given_up into recovered, given_up
    from pgflowd._sweep_leased(stalled.run_ids, stalled.step_slugs, stalled.task_indexes,
                               'its lease lapsed', true) as swept;
  select swept.* into unleased
    from pgflowd._sweep_unleased(sweep.stale_threshold, sweep.max_tasks) as swept;
  recovered := recovered + unleased.recovered;
  given_up := given_up + unleased.given_up;
end $$;
