-- _show_young(queue_name, msg_ids): makes messages that this transaction has read, and is too old for,
-- visible again: now, or from the time on at which they were sent, which is in the future after
-- the server's clock was set back. Returns whether one of them is visible now.
-- Called by: claim.   Locks: nothing new; the caller holds the messages.
create or replace function pgflowd._show_young(queue_name text, msg_ids bigint[])
returns boolean language plpgsql set search_path = '', pg_temp as $$
declare
  is_visible boolean;
begin
  execute format(
    'with shown as (
       update %s as message set vt = greatest(message.enqueued_at, clock_timestamp())
        where message.msg_id = any($1)
       returning message.vt <= clock_timestamp() as now)
     select coalesce(bool_or(shown.now), false) from shown',
    pgflowd._queue_table(_show_young.queue_name))
    into is_visible using _show_young.msg_ids;
  return is_visible;
end $$;
