-- _queue_name(flow_slug): returns the queue of a flow. pgmq names its tables in lower case.
-- Not by the rules of the database's locale: Turkish has another lower case of I.
-- Called by: _archive, create_flow, _create_queue, delete_flow_and_data, _hide,
-- prune_data_older_than, _recover_stalled, _send_messages, _start_tasks, start_tasks, _started_tasks,
-- pgflowd._queues, pgflowd._started_tasks; db migrate.
-- Locks: nothing.
create or replace function pgflow._queue_name(flow_slug text)
returns text language sql immutable parallel safe
return lower(flow_slug collate "C");
