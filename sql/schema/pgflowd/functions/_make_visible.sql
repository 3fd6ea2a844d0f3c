-- _make_visible(queue_name, msg_ids, at, extend): makes messages visible from that moment on.
-- With `extend` no message becomes visible earlier than it would anyhow. A message that another
-- transaction has locked is skipped, so a caller that holds tasks never waits for a queue.
-- Called by: claim, _handle_unstarted, heartbeat, _pass_gates, _requeue_stalled,
-- _sweep_unleased_task, task_claim.   Locks: queue rows, skipping locked ones.
create or replace function pgflowd._make_visible(
  queue_name text, msg_ids bigint[], at timestamptz, extend boolean default false)
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  execute format(
    'with free as (
       select msg_id from %1$s
        where msg_id = any($1) and (vt < $2 or (vt > $2 and not $3))
        order by msg_id for update skip locked)
     update %1$s as message set vt = $2
       from free where message.msg_id = free.msg_id',
    pgflowd._queue_table(_make_visible.queue_name))
    using _make_visible.msg_ids, _make_visible.at, _make_visible.extend;
end $$;
