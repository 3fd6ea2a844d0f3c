-- postpone_stalled(why): what sweep(…, 1) did not get done, as the server cut it: the first stalled task has
-- its lease for another minute (_postpone_lease), so that the others are recovered.
-- Called by: the sweeper.   Locks: the task, unless it is locked; attempts.
create or replace function pgflowd.postpone_stalled(why text)
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  first constant record := pgflowd._lock_stalled_leases(null, true, 1);
begin
  perform pgflowd._postpone_lease(
    first.run_ids[1], first.step_slugs[1], first.task_indexes[1], postpone_stalled.why)
    where first.run_ids is not null;
end $$;
