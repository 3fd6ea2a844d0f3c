-- _task_queue(task): returns the queue that holds a task's message.
-- Called by: _cancel_tasks, _delete_messages, _fail_reported, _free, _give_slot, _handle_unstarted,
-- heartbeat, _hold_task, _open_tasks, _put_aside, _put_run_aside, _queue_violations, _requeue_released,
-- _requeue_stalled, _requeue_step, requeue_task, run_steps, run_troubles, _send_lost, _suspend,
-- _sweep_unleased_task, _take_needed, _without_message, view task_status.   Locks: nothing.
create or replace function pgflowd._task_queue(task pgflow.step_tasks)
returns text language sql immutable
return (task).queue_name;
