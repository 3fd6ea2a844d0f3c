-- _hide(flow_slugs, message_ids, seconds): hides each message for its number of seconds from now,
-- by the clock; one call per queue. Returns how many messages there were.
-- Called by: _fail_tasks, _recover_stalled.
-- Locks: the messages (tasks are locked already).
create or replace function pgflow._hide(flow_slugs text[], message_ids bigint[], seconds int[])
returns bigint language sql set search_path = '', pg_temp as $$
  select coalesce(sum((select count(*) from pgflow.set_vt_batch(queue.name, queue.messages, queue.seconds))), 0)::bigint
    from (select pgflow._queue_name(hidden.flow_slug) as name,
                 array_agg(hidden.message_id order by hidden.message_id) as messages,
                 array_agg(hidden.seconds order by hidden.message_id) as seconds
            from unnest(flow_slugs, message_ids, seconds) as hidden (flow_slug, message_id, seconds)
           where hidden.message_id is not null
           group by 1) as queue;
$$;
