-- _sweep_leased(worker_id, reason, only_lapsed, max_tasks): recovers started tasks whose attempts stalled:
-- all of this worker, or with `only_lapsed` those of any worker whose lease has lapsed. Returns how many
-- were queued again, and how many given up.
-- Called by: sweep, sweep_dead.
-- Locks: tasks, skipping locked ones; see _recover_some.
create or replace function pgflowd._sweep_leased(
  worker_id uuid, reason text, only_lapsed boolean, max_tasks int,
  out recovered int, out given_up int)
language plpgsql set search_path = '', pg_temp as $$
declare
  stalled constant record := pgflowd._lock_stalled_leases(
    _sweep_leased.worker_id, _sweep_leased.only_lapsed, _sweep_leased.max_tasks);
begin
  -- a statement of its own, which sees what was done until the tasks were locked
  select done.recovered, done.given_up into recovered, given_up
    from pgflowd._recover_tasks(stalled.run_ids, stalled.step_slugs, stalled.task_indexes,
                                _sweep_leased.reason, _sweep_leased.only_lapsed) as done;
end $$;
