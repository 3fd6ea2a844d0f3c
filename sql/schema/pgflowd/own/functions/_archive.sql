-- _archive(queue_name, msg_ids): archives messages; returns how many there were.
-- Called by: _cancel_tasks, _handle_unstarted, _requeue_step, requeue_task.   Locks: the messages.
create or replace function pgflowd._archive(queue_name text, msg_ids bigint[])
returns bigint language sql
return pgflow._archive(queue_name, msg_ids);
