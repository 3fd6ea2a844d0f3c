-- _hide(queues, message_ids, delays): each of these messages becomes visible when its delay is over, in
-- whole seconds; who sleeps on the queue of one without a delay is told.
-- Called by: _fail_reported, _requeue_released.   Locks: the messages; the caller holds the tasks.
create or replace function pgflowd._hide(queues text[], message_ids bigint[], delays interval[])
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  queue record;
begin
  for queue in
    select hidden.queue as name, array_agg(hidden.message_id) as messages,
           array_agg(hidden.delay) as delays, min(hidden.delay) as least_delay
      from unnest(_hide.queues, _hide.message_ids, _hide.delays) as hidden (queue, message_id, delay)
     group by 1 order by 1
  loop
    execute format(
      'update %s as message
          set vt = clock_timestamp() + make_interval(secs => ceil(extract(epoch from hidden.delay)))
         from unnest($1, $2) as hidden (message_id, delay)
        where message.msg_id = hidden.message_id', pgflowd._queue_table(queue.name))
      using queue.messages, queue.delays;
    if queue.least_delay <= interval '0' then
      perform pgflowd._ring(queue.name);
    end if;
  end loop;
end $$;
