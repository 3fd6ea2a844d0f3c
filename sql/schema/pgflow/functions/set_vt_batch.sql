-- set_vt_batch(queue_name, msg_ids, vt_offsets): hides each message for its number of seconds
-- from now, by the clock, and returns those it found. A null argument finds none.
-- Called by: _recover_stalled, _start_tasks; workers of other runtimes.   Locks: the messages.
create or replace function pgflow.set_vt_batch(queue_name text, msg_ids bigint[], vt_offsets int[])
returns table (msg_id bigint, read_ct int, enqueued_at timestamptz, vt timestamptz,
               message jsonb, headers jsonb)
language plpgsql set search_path = '', pg_temp as $$
begin
  if queue_name is null or msg_ids is null or vt_offsets is null then
    return;
  elsif cardinality(msg_ids) <> cardinality(vt_offsets) then
    raise exception 'msg_ids length (%) must equal vt_offsets length (%)',
                    cardinality(msg_ids), cardinality(vt_offsets);
  end if;
  return query execute format($query$
    update pgmq.%I as queue
       set vt = clock_timestamp() + make_interval(secs => moved.seconds)
      from unnest($1, $2) as moved (msg_id, seconds)
     where queue.msg_id = moved.msg_id
    returning queue.msg_id, queue.read_ct, queue.enqueued_at, queue.vt, queue.message, queue.headers
    $query$, 'q_' || lower(set_vt_batch.queue_name collate "C"))
    using msg_ids, vt_offsets;
end $$;
