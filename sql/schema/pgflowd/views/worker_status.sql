-- worker_status: the workers that have not stopped, how many tasks each holds, and its last
-- heartbeat; and the workers that sleep, which a daemon starts again when there is work.
create or replace view pgflowd.worker_status as
  with held as materialized (
    select task.last_worker_id as worker_id, count(*) as tasks
      from pgflowd._started_tasks(null) as started
      join pgflow.step_tasks as task using (run_id, step_slug, task_index)
      join pgflow.runs as run on run.run_id = task.run_id and run.status = 'started'
     group by task.last_worker_id)
  select worker.worker_id, worker.queue_name, worker.function_name, worker.started_at,
         worker.last_heartbeat_at, worker.deprecated_at is not null as is_deprecated,
         coalesce(held.tasks, 0) as running, pgflowd._is_asleep(worker) as is_asleep
    from pgflow.workers as worker
    left join held on held.worker_id = worker.worker_id
   where worker.stopped_at is null or pgflowd._is_asleep(worker);
