-- crashed(worker_id, reason, max_tasks): queues again what a worker held whose processes have ended
-- and are reaped, no attempt spent. Returns the number of tasks; see sweep_dead.
-- Called by: operators.   Locks: see sweep_dead.
create or replace function pgflowd.crashed(worker_id uuid, reason text, max_tasks int default 500)
returns int language plpgsql set search_path = '', pg_temp as $$
begin
  return (select swept.recovered
            from pgflowd.sweep_dead(crashed.worker_id, crashed.reason,
                                    crashed.max_tasks) as swept);
end $$;
