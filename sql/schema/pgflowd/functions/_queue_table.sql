-- _queue_table(queue_name, kind): the table of a queue (`q`) or of its archive (`a`), quoted, as pgmq names
-- it. Queries inline it. No function of ours calls one of pgmq's, except those that create, list and drop
-- queues, which no function with its owner's rights calls: sql/README.md says why.
-- Called by: _count_open_runs, _delete_messages, _has_open_work, _hide, list_flows, look_at_queues,
-- _make_visible, _open_runs, open_tasks, _open_tasks, _pass_gates, _prune_leftovers, _put_aside,
-- _queue_status, queue_violations, _read_messages, renew_workers, _requeue_step, share_queue, _show_young,
-- _suspend, task_claim, _visible_at, watch_queue, _without_message, writers.   Locks: nothing.
create or replace function pgflowd._queue_table(queue_name text, kind text default 'q')
returns text language sql immutable parallel safe
return 'pgmq.' || quote_ident(lower(kind || '_' || queue_name));
