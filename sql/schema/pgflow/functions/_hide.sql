-- _hide(flow_slugs, message_ids, seconds, are_unread): hides the messages of tasks that are queued
-- again, each for its number of seconds from now, by the clock. Those that `are_unread` count as not
-- read: _started_tasks looks at what was read, and many tasks may wait for their next attempt.
-- Called by: _fail_tasks.
-- Locks: the messages (tasks are locked already).
create or replace function pgflow._hide(
  flow_slugs text[], message_ids bigint[], seconds int[], are_unread boolean[])
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  queue record;
begin
  for queue in
    select pgflow._queue_name(hidden.flow_slug) as name, array_agg(hidden.message_id) as messages,
           array_agg(hidden.seconds) as seconds, array_agg(hidden.is_unread) as are_unread
      from unnest(_hide.flow_slugs, _hide.message_ids, _hide.seconds, _hide.are_unread)
           as hidden (flow_slug, message_id, seconds, is_unread)
     where hidden.message_id is not null
     group by 1 order by 1
  loop
    execute format($query$
      update pgmq.%I as message
         set vt = clock_timestamp() + make_interval(secs => hidden.seconds),
             read_ct = case when hidden.is_unread then 0 else message.read_ct end
        from unnest($1, $2, $3) as hidden (message_id, seconds, is_unread)
       where message.msg_id = hidden.message_id
      $query$, 'q_' || queue.name)
      using queue.messages, queue.seconds, queue.are_unread;
  end loop;
end $$;
