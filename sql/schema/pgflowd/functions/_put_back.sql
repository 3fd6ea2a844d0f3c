-- _put_back(task, attempt, delay): queues a task again as if it had not been claimed: visible after
-- `delay`, the attempt not spent.
-- Called by: _become, _requeue_released.   Locks: the message; the caller holds the task.
create or replace function pgflowd._put_back(task pgflow.step_tasks, attempt int, delay interval)
returns void language plpgsql set search_path = '' as $$
declare
  queue text := pgflowd._task_queue(task);
begin
  update pgflow.step_tasks as known
     set status = 'queued', started_at = null, last_worker_id = null,
         attempts_count = greatest(_put_back.attempt - 1, 0)
   where known.run_id = task.run_id and known.step_slug = task.step_slug
     and known.task_index = task.task_index;
  perform pgmq.set_vt(queue, task.message_id,
                      ceil(extract(epoch from _put_back.delay))::int);
  if _put_back.delay <= interval '0' then
    perform pgflowd._wake(queue);
  end if;
end $$;
