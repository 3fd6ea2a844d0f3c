-- _queue_status(queue_name): returns how many messages are visible now, how many are hidden,
-- because their tasks are at work or wait for a delay, and for how long the oldest has been
-- visible. It counts to ten thousand, since to count more takes too long. No row where there is no
-- such queue.
-- Called by: open_tasks, unserved_queues, view flow_status.   Locks: nothing.
create or replace function pgflowd._queue_status(queue_name text)
returns table (ready bigint, hidden bigint, oldest_ready_s double precision)
language plpgsql stable set search_path = '', pg_temp as $$
declare
  queue text := pgmq.format_table_name(_queue_status.queue_name, 'q');
begin
  if to_regclass(format('pgmq.%I', queue)) is null then
    return;
  end if;
  return query execute format(
    'select (select count(*)
               from (select from pgmq.%1$I as one where one.vt <= $1
                      order by one.vt limit 10000) as ready),
            (select count(*)
               from (select from pgmq.%1$I as one where one.vt > $1
                      order by one.vt limit 10000) as hidden),
            (select extract(epoch from $1 - one.vt)::double precision
               from pgmq.%1$I as one where one.vt <= $1 order by one.vt limit 1)', queue)
    using clock_timestamp();
end $$;
