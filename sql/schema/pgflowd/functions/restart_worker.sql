-- restart_worker(worker_id, actor, reason): lets a worker finish its tasks, and then end; its supervisor
-- starts another one in its place, on whichever machine. Returns `restarting`, or `repeated` when it is
-- to end already; PF002 for one that is unknown, or has stopped. It hears of it by its next heartbeat.
-- Security definer, so that who may touch no table may be allowed this.
-- Called by: `pgflowd daemons restart`, operators.   Locks: the row of the worker.
create or replace function pgflowd.restart_worker(
  worker_id uuid, actor text default null, reason text default null)
returns text language plpgsql security definer set search_path = '', pg_temp as $$
declare
  worker pgflow.workers;
begin
  select one.* into worker
    from pgflow.workers as one where one.worker_id = restart_worker.worker_id for no key update;
  if worker.worker_id is null or worker.stopped_at is not null then
    raise exception 'there is no running worker %', restart_worker.worker_id
      using errcode = 'PF002', hint = '`pgflowd daemons list -v` shows the workers; one that sleeps or is'
                                      ' parked has no process, and starts as a new one';
  end if;
  if worker.deprecated_at is not null then
    return 'repeated';
  end if;
  update pgflow.workers as one set deprecated_at = now()
   where one.worker_id = restart_worker.worker_id;
  perform pgflowd._record_action(
    'restart_worker', restart_worker.actor, reason => restart_worker.reason,
    flow_slug => (select min(flow.flow_slug)
                    from pgflow.flows as flow
                   cross join lateral pgflowd._queues(flow.flow_slug) as queue
                   where lower(queue.queue_name collate "C") = lower(worker.queue_name collate "C")),
    data => jsonb_build_object('worker', worker.worker_id, 'queue', worker.queue_name));
  return 'restarting';
end $$;
