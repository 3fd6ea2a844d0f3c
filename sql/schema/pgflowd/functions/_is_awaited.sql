-- _is_awaited(queue_name): whether somebody sleeps on this queue, so that its next message is to
-- notify. The caller's transaction has written into the queue before it asks: whoever arms meanwhile
-- sees that by its lock (writers). A transaction that reads by an old snapshot cannot see new
-- doorbells, so for it somebody always does.
-- It is volatile, since each question needs a snapshot of its own.
-- Called by: notify_queue, _ring.   Locks: nothing.
create or replace function pgflowd._is_awaited(queue_name text)
returns boolean language plpgsql volatile set search_path = '', pg_temp as $$
begin
  if pg_catalog.current_setting('transaction_isolation') <> 'read committed' then
    return true;
  end if;
  perform from pgflowd.doorbells as bell where bell.queue = _is_awaited.queue_name limit 1;
  return found;
end $$;
