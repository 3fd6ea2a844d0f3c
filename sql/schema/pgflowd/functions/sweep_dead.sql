-- sweep_dead(worker_id, reason, max_tasks): queues again what a worker held whose processes have
-- ended and are reaped: visible at once, no attempt spent. A task whose attempts stalled
-- `crash_limit` times in a row is failed for good instead. Returns how many tasks were queued
-- again, and how many given up. The worker's doorbell is taken down.
-- Called by: crashed; the sweeper.
-- Locks: tasks, skipping locked ones; attempts; queue rows, skipping; the run of a task that is
-- given up, unless it is locked.
create or replace function pgflowd.sweep_dead(
  worker_id uuid, reason text, max_tasks int default 500, out recovered int, out given_up int)
language plpgsql set search_path = '', pg_temp as $$
begin
  select swept.recovered, swept.given_up into recovered, given_up
    from pgflowd._sweep_leased(sweep_dead.worker_id, coalesce(sweep_dead.reason, 'its worker died'),
                               false, sweep_dead.max_tasks) as swept;
  perform pgflowd._sweep_doorbells(sweep_dead.worker_id);
end $$;
