-- _queues(flow_slug): returns the queues that a worker of this flow reads: one. Queries inline it, so it
-- has no settings of its own.
-- Called by: claim, _count_open_runs, _end_undo, _has_open_work, _hold_task, list_caps, list_flows, _open_runs,
-- _open_tasks, open_tasks, _prune_leftovers, queue_violations, restart_worker, _start_undo, task_claim,
-- unserved_queues, view flow_status; commands, db migrate.   Locks: nothing.
create or replace function pgflowd._queues(flow_slug text)
returns table (queue_name text, step_slug text) language sql immutable
begin atomic
  select pgflow._queue_name(_queues.flow_slug), null::text;
end;
