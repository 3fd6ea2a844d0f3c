-- notify_queue(): the trigger that announces new messages of a queue to those who sleep on it.
-- At most one notification per inserting statement on channel `pgflowd`, the queue's name as payload;
-- PostgreSQL folds equal ones of a transaction. It saves time and decides nothing.
-- It has its owner's rights, since whoever may send need not be able to read doorbells.
-- Called by: watch_queue; queue triggers.   Locks: nothing.
create or replace function pgflowd.notify_queue()
returns trigger language plpgsql security definer set search_path = '', pg_temp set jit = off
set enable_seqscan = off as $$
declare
  queue constant text := substr(tg_table_name::text, 3);
begin
  if pgflowd._is_awaited(queue) then
    perform pg_notify('pgflowd', queue);
  end if;
  return null;
end $$;
