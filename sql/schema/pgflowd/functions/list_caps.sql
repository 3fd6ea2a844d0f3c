-- list_caps(flow_slug): what the workers of a flow have that are alive, or sleep, of those that have
-- something.
-- Called by: _is_served; commands.   Locks: nothing.
create or replace function pgflowd.list_caps(flow_slug text)
returns table (name text, caps text[]) language plpgsql stable set search_path = '', pg_temp as $$
begin
  return query
    select worker.function_name, known.caps
      from pgflowd.worker_caps as known
      join pgflow.workers as worker on worker.worker_id = known.worker_id
     where worker.queue_name in (select queue.queue_name
                                   from pgflowd._queues(list_caps.flow_slug) as queue)
       and (worker.stopped_at is null
            and worker.last_heartbeat_at > now() - interval '30 s'
            or pgflowd._is_asleep(worker))
     order by 1;
end $$;
