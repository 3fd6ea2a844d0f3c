-- notify_queue(): the trigger that announces new messages of a queue.
-- One notification per inserting statement on channel `pgflowd`, the queue's name as payload;
-- PostgreSQL folds equal ones of a transaction. It saves time and decides nothing.
-- Called by: watch_queue; queue triggers.   Locks: nothing.
create or replace function pgflowd.notify_queue()
returns trigger language plpgsql set search_path = '', pg_temp as $$
begin
  perform pg_notify('pgflowd', substr(tg_table_name::text, 3));
  return null;
end $$;
