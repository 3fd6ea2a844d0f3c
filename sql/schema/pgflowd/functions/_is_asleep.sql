-- _is_asleep(worker): whether the worker has stopped because it had nothing to do, and its daemon
-- starts another one when there is work. The daemon's sweeper renews such a row each half minute.
-- Called by: list_caps, list_flows, unserved_queues, view worker_status.   Locks: nothing.
create or replace function pgflowd._is_asleep(worker pgflow.workers)
returns boolean language sql stable set search_path = '', pg_temp as $$
  select coalesce(
    (to_jsonb(_is_asleep.worker) ->> 'stopped_at')::timestamptz <= (_is_asleep.worker).last_heartbeat_at
    and (_is_asleep.worker).last_heartbeat_at > now() - interval '90 s'
    and not exists (
      select from pgflow.workers as later
       where later.queue_name = (_is_asleep.worker).queue_name
         and later.function_name = (_is_asleep.worker).function_name
         and later.started_at > (to_jsonb(_is_asleep.worker) ->> 'stopped_at')::timestamptz), false);
$$;
