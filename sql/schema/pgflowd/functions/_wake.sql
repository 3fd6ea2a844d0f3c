-- _wake(queue_name): notifies the listeners of this queue, whether or not anybody sleeps on it. For what
-- a busy worker has to learn too, since it concerns a task that it executes.
-- Called by: _cancel_tasks, _end_undo, _give_slot, _pass_gates, _requeue_step, resume_flow, _ring,
-- _start_undo, _suspend.
-- Locks: nothing.
create or replace function pgflowd._wake(queue_name text)
returns void language sql set search_path = '', pg_temp as $$
  select pg_notify('pgflowd', lower(_wake.queue_name collate "C"));
$$;
