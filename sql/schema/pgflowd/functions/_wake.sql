-- _wake(queue_name): notifies the listeners of this queue.
-- For functions that make work visible without an insert, which no trigger sees.
-- Called by: _cancel_tasks, claim, _fail_reported, _requeue_released, _requeue_stalled,
-- _requeue_step, _sweep_unleased_task.
-- Locks: nothing.
create or replace function pgflowd._wake(queue_name text)
returns void language sql set search_path = '' as $$
  select pg_notify('pgflowd', lower(_wake.queue_name collate "C"));
$$;
