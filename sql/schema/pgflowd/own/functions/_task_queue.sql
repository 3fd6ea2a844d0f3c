-- _task_queue(task): returns the queue that holds a task's message.
-- Called by: reports, beats, recoveries.   Locks: nothing.
create or replace function pgflowd._task_queue(task pgflow.step_tasks)
returns text language sql immutable as $$
  select (task).queue_name;
$$;
