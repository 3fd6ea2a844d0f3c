-- _read_messages(queue_name, max_messages, hidden_s): reads visible messages, those first that
-- have been visible for longest, and hides them for `hidden_s` seconds. Messages that others have
-- locked are skipped.
-- It goes along the index of `vt`, so hidden messages cost nothing, however many there are;
-- pgmq.read goes along the ids and looks at each. The moment is a parameter, since no index is read
-- by the volatile clock_timestamp(), and the ids are an array, so no plan joins the queue with itself.
-- Called by: claim.   Locks: the messages.
create or replace function pgflowd._read_messages(
  queue_name text, max_messages int, hidden_s int)
returns table (msg_id bigint, read_ct int, enqueued_at timestamptz)
language plpgsql set search_path = '', pg_temp as $$
begin
  return query execute format(
    'update %1$s as message
        set vt = clock_timestamp() + make_interval(secs => $3), read_ct = message.read_ct + 1
      where message.msg_id = any (array(
        select ready.msg_id from %1$s as ready
         where ready.vt <= $1 order by ready.vt limit $2 for update skip locked))
     returning message.msg_id, message.read_ct, message.enqueued_at',
    pgflowd._queue_table(_read_messages.queue_name))
    using clock_timestamp(), max_messages, hidden_s;
end $$;
