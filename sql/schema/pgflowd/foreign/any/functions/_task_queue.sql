-- _task_queue(task): the queue that holds a task's message, on a core of somebody else.
-- The flow's; since 0.17 tasks keep a name of their own.
-- Called by: reports, beats, recoveries.   Locks: nothing.
create or replace function pgflowd._task_queue(task pgflow.step_tasks)
returns text language sql immutable set search_path = '' as $$
  select coalesce(to_jsonb(_task_queue.task) ->> 'queue_name',
                  (_task_queue.task).flow_slug);
$$;
