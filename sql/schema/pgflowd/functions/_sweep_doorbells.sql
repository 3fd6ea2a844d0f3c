-- _sweep_doorbells(worker_id): takes down the doorbell of a worker that has died; with null those
-- that are older than five minutes and whose owner has shown no life for as long. Such a doorbell
-- costs notifications and nothing else. A worker that has signed off has taken its own down, or
-- sleeps, and its daemon keeps it up.
-- Called by: sweep, sweep_dead.   Locks: the rows, skipping locked ones.
create or replace function pgflowd._sweep_doorbells(worker_id uuid)
returns void language sql set search_path = '', pg_temp as $$
  delete from pgflowd.doorbells as bell
   using (select one.queue, one.owner
            from pgflowd.doorbells as one
           where one.owner = _sweep_doorbells.worker_id
                 and not exists (select from pgflow.workers as worker
                                  where worker.worker_id = one.owner
                                    and worker.stopped_at is not null)
              or _sweep_doorbells.worker_id is null
                 and one.armed_at < now() - interval '5 minutes'
                 and not exists (select from pgflow.workers as worker
                                  where worker.worker_id = one.owner
                                    and worker.last_heartbeat_at > now() - interval '5 minutes')
             for update skip locked) as gone
   where bell.queue = gone.queue and bell.owner = gone.owner;
$$;
