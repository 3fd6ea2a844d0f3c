-- _queue_status(queue_name): returns how many messages are visible now, how many are hidden,
-- because their tasks are at work or wait for a delay, and for how long the oldest has been
-- visible. It counts to ten thousand, since to count more takes too long. No row where there is no
-- such queue.
-- Called by: open_tasks, unserved_queues, view flow_status.   Locks: nothing.
create or replace function pgflowd._queue_status(queue_name text)
returns table (ready bigint, hidden bigint, oldest_ready_s double precision)
language plpgsql stable set search_path = '', pg_temp as $$
declare
  queue constant text := pgflowd._queue_table(_queue_status.queue_name);
begin
  if to_regclass(queue) is null then
    return;
  end if;
  return query execute format(
    'select (select count(*)
               from (select from %1$s as one where one.vt <= $1
                      order by one.vt limit 10000) as ready),
            (select count(*)
               from (select from %1$s as one where one.vt > $1
                      order by one.vt limit 10000) as hidden),
            (select extract(epoch from $1 - one.vt)::double precision
               from %1$s as one where one.vt <= $1 order by one.vt limit 1)', queue)
    using clock_timestamp();
end $$;
