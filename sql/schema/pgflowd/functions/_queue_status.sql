-- _queue_status(queue_name): returns how many messages are visible now, how many are hidden,
-- because their tasks are at work or wait for a delay, and for how long the oldest has been
-- visible. No row where there is no such queue.
-- Called by: view flow_status.   Locks: nothing.
create or replace function pgflowd._queue_status(queue_name text)
returns table (ready bigint, hidden bigint, oldest_ready_s double precision)
language plpgsql stable set search_path = '' as $$
declare
  queue text := pgmq.format_table_name(_queue_status.queue_name, 'q');
begin
  if to_regclass(format('pgmq.%I', queue)) is null then
    return;
  end if;
  return query execute format(
    'select count(*) filter (where message.vt <= clock_timestamp()),
            count(*) filter (where message.vt > clock_timestamp()),
            extract(epoch from clock_timestamp() - min(message.vt)
                    filter (where message.vt <= clock_timestamp()))::double precision
       from pgmq.%I as message', queue);
end $$;
