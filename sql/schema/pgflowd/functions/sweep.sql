-- sweep(stale_threshold, max_tasks): queues stalled tasks again, and fails for good those that
-- stalled too often. Returns how many were queued again, and how many given up.
-- A task with a lease is stalled when the lease has lapsed; one of upstream's, which has none,
-- `stale_threshold` after its timeout. Tasks that upstream's own recovery gave up, which would
-- stay started for ever, are failed. Rows of followers that are gone are deleted, and doorbells that
-- nobody needs any more.
-- Called by: recover_stalled; the sweeper.
-- Locks: tasks, skipping locked ones; attempts; queue rows, skipping; runs of tasks given up,
-- unless locked.
create or replace function pgflowd.sweep(
  stale_threshold interval default '60 s', max_tasks int default 500,
  out recovered int, out given_up int)
language plpgsql set search_path = '', pg_temp as $$
declare
  unleased record;
begin
  perform pgflowd._delete_expired_followers(10000);
  select swept.recovered, swept.given_up into recovered, given_up
    from pgflowd._sweep_leased(null, 'its lease lapsed', true, sweep.max_tasks) as swept;
  select swept.* into unleased
    from pgflowd._sweep_unleased(sweep.stale_threshold, sweep.max_tasks) as swept;
  recovered := recovered + unleased.recovered;
  given_up := given_up + unleased.given_up;
  perform pgflowd._sweep_doorbells(null);
end $$;
