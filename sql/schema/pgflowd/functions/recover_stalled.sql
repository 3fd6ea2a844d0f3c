-- recover_stalled(stale_threshold, max_tasks): queues stalled tasks again, and the newest ones
-- whose message is gone, and fills places of limits; returns their number. Tasks that stalled too often
-- are failed for good.
-- Called by: operators.   Locks: see sweep and resend.
create or replace function pgflowd.recover_stalled(
  stale_threshold interval default '60 s', max_tasks int default 500)
returns int language plpgsql set search_path = '', pg_temp as $$
begin
  perform pgflowd.refill_limits();
  return (select swept.recovered + behind.recovered + lost.resent
            from pgflowd.sweep(recover_stalled.stale_threshold, recover_stalled.max_tasks) as swept,
                 pgflowd.sweep_attempts(null, recover_stalled.max_tasks) as behind,
                 pgflowd.resend(null, recover_stalled.max_tasks) as lost);
end $$;
