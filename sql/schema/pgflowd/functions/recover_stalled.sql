-- recover_stalled(stale_threshold, max_tasks): queues stalled tasks again; returns their number.
-- Tasks that stalled too often are failed for good, see sweep.
-- Called by: operators.   Locks: see sweep.
create or replace function pgflowd.recover_stalled(
  stale_threshold interval default '60 s', max_tasks int default 500)
returns int language plpgsql set search_path = '' as $$
begin
  return (select swept.recovered
            from pgflowd.sweep(recover_stalled.stale_threshold,
                               recover_stalled.max_tasks) as swept);
end $$;
