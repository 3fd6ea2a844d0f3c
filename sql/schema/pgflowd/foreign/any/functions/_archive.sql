-- _archive(queue_name, msg_ids): archives messages; returns how many there were. A message whose
-- id the archive has already is deleted: after a migration that left the sequences behind, ids
-- are given a second time.
-- Called by: _cancel_tasks, _handle_unstarted, _requeue_step, requeue_task.   Locks: the messages.
create or replace function pgflowd._archive(queue_name text, msg_ids bigint[])
returns bigint language plpgsql set search_path = '', pg_temp as $$
declare
  deleted bigint;
begin
  return (select count(*) from pgmq.archive(_archive.queue_name, _archive.msg_ids));
exception when unique_violation then
  execute format(
    'delete from %s as message using %s as kept
      where message.msg_id = any($1) and kept.msg_id = message.msg_id',
    pgflowd._queue_table(_archive.queue_name), pgflowd._queue_table(_archive.queue_name, 'a'))
    using _archive.msg_ids;
  get diagnostics deleted = row_count;
  return deleted
       + (select count(*) from pgmq.archive(_archive.queue_name, _archive.msg_ids));
end $$;
