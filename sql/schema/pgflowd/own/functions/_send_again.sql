-- _send_again(queue_name, flow_slug, run_ids, step_slugs, task_indexes, hidden_s): sends a new message
-- for each of these tasks of one flow, hidden for so long; returns the ids, in the order of the tasks.
-- Called by: _free, _requeue_step, requeue_task, _send_lost.   Locks: the new rows; the caller holds the tasks.
create or replace function pgflowd._send_again(
  queue_name text, flow_slug text, run_ids uuid[], step_slugs text[], task_indexes int[],
  hidden_s int default 0)
returns bigint[] language sql
return pgflow._send_messages(flow_slug, hidden_s, run_ids, step_slugs, task_indexes);
