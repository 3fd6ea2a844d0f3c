-- unserved_queues(): returns the flows with visible messages that no worker of any daemon serves, as
-- none is alive or sleeps: how many messages there are, at most ten thousand, and for how long the
-- oldest has been visible. A queue that may not be read is passed over. Of five hundred flows at most, by
-- their names.
-- Called by: the sweeper.   Locks: nothing.
create or replace function pgflowd.unserved_queues()
returns table (flow_slug text, queued bigint, oldest_queued_s double precision)
language plpgsql stable set search_path = '', pg_temp as $$
declare
  queue_name text;
  found int := 0;
begin
  for flow_slug, queue_name in
    select flow.flow_slug, known.queue_name
      from pgflow.flows as flow
     cross join lateral pgflowd._queues(flow.flow_slug) as known
     where not exists (
       select from pgflow.workers as worker
        where worker.queue_name = known.queue_name
          and (pgflowd._is_asleep(worker)
               or worker.stopped_at is null
                  and worker.last_heartbeat_at > now() - interval '30 s'))
     order by 1
  loop
    begin
      select queue.ready, queue.oldest_ready_s into queued, oldest_queued_s
        from pgflowd._queue_status(queue_name) as queue;
    exception when insufficient_privilege then
      continue;
    end;
    if queued > 0 then
      return next;
      found := found + 1;
    end if;
    exit when found = 500;
  end loop;
end $$;
