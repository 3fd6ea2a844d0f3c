-- flow_status: the open work of each flow: tasks at work, tasks ready, tasks that wait for a delay,
-- for how many seconds the oldest ready one has been ready, and tasks that wait for a time or a
-- signal. It counts to ten thousand.
create or replace view pgflowd.flow_status as
  with at_work as materialized (
    select task.flow_slug, count(*) as tasks
      from pgflowd._started_tasks(null) as started
      join pgflow.step_tasks as task using (run_id, step_slug, task_index)
      join pgflow.runs as run on run.run_id = task.run_id and run.status = 'started'
     group by task.flow_slug)
  select flow.flow_slug, coalesce(max(at_work.tasks), 0) as running,
         coalesce(sum(queue.ready), 0)::bigint as queued,
         greatest(coalesce(sum(queue.hidden), 0) - coalesce(max(at_work.tasks), 0), 0)::bigint
           as delayed,
         max(queue.oldest_ready_s) as oldest_queued_s,
         (select count(*) from pgflowd._waiting_runs(flow.flow_slug)) as waiting
    from pgflow.flows as flow
    left join at_work on at_work.flow_slug = flow.flow_slug
    left join lateral pgflowd._queues(flow.flow_slug) as known on true
    left join lateral pgflowd._queue_status(known.queue_name) as queue on true
   group by flow.flow_slug;
