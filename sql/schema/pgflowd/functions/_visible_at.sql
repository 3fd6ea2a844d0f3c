-- _visible_at(queue_name, msg_ids): returns when each of these messages becomes visible; no row for
-- those that are no longer in the queue. No queue, no rows.
-- Called by: _put_run_aside, run_steps, run_troubles, _send_lost, view task_status.   Locks: nothing.
create or replace function pgflowd._visible_at(queue_name text, msg_ids bigint[])
returns table (msg_id bigint, visible_at timestamptz)
language plpgsql stable strict set search_path = '', pg_temp as $$
declare
  queue regclass := to_regclass(pgflowd._queue_table(_visible_at.queue_name));
begin
  if queue is not null then
    return query execute format(
      'select message.msg_id, message.vt::timestamptz from %s as message'
      ' where message.msg_id = any ($1)', queue) using _visible_at.msg_ids;
  end if;
end $$;
