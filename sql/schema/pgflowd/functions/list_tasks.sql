-- list_tasks(run_id, flow_slug, statuses, max_rows, needs): returns the open tasks of a run, a flow, or
-- (null) of all, that have one of these statuses (null: any), with what they wait for; the oldest first.
-- With `needs` only those that wait for a worker that has these. `since` and `until` are as in view
-- task_status; `is_unserved`: no living worker has what the task needs; `worker`: the name of the worker, or
-- the person, that has it; `title`: of the run. See _open_tasks for its limits.
-- Called by: commands.   Locks: nothing.
create or replace function pgflowd.list_tasks(
  run_id uuid default null, flow_slug text default null, statuses text[] default null,
  max_rows int default 20, needs text[] default null)
returns table (run_id uuid, step_slug text, task_index int, flow_slug text, status text,
               attempts int, kind text, name text, why text, since timestamptz,
               until timestamptz, is_unserved boolean, worker text, title text)
language sql stable set search_path = '', pg_temp as $$
  select task.run_id, task.step_slug, task.task_index, task.flow_slug, judged.status,
         task.attempts_count, wait.kind, wait.name, wait.why,
         coalesce(wait.since, held.started_at, task.started_at, task.queued_at) as since,
         case when wait.run_id is not null then wait.due_at
              else coalesce(held.lease_until, open.visible_at) end,
         wait.kind = 'need' and not pgflowd._is_served(task.flow_slug, wait.name),
         (select worker.function_name from pgflow.workers as worker
           where worker.worker_id = held.worker_id),
         (select ours.title from pgflowd.runs as ours where ours.run_id = task.run_id)
    from pgflowd._open_tasks(list_tasks.run_id, list_tasks.flow_slug, list_tasks.statuses,
                             list_tasks.max_rows, list_tasks.needs) as open
   cross join lateral (
     select one.run_id, one.step_slug, one.task_index, one.flow_slug, one.status,
            one.attempts_count, one.queued_at,
            case when one.status = 'started' then one.started_at end as started_at
       from pgflow.step_tasks as one
      where one.run_id = open.run_id and one.step_slug = open.step_slug
        and one.task_index = open.task_index offset 0) as task
   cross join lateral (
     select from pgflow.runs as one
      where one.run_id = task.run_id and one.status = 'started' offset 0) as run
   cross join lateral (
     select from pgflow.step_states as one
      where one.run_id = task.run_id and one.step_slug = task.step_slug
        and one.status = 'started' offset 0) as state
    left join pgflowd.waits as wait
      on wait.run_id = task.run_id and wait.step_slug = task.step_slug
     and wait.task_index = task.task_index
    left join lateral (
      select one.started_at, one.lease_until, one.worker_id from pgflowd.attempts as one
       where one.run_id = task.run_id and one.step_slug = task.step_slug
         and one.task_index = task.task_index and one.ended_at is null
         and one.attempt = task.attempts_count and task.status = 'started'
       order by one.token desc limit 1) as held on true
   cross join lateral (
     select pgflowd._task_status(task.status, wait.kind,
                                 coalesce(held.lease_until, open.visible_at), now()) as status
     ) as judged
   where list_tasks.statuses is null or judged.status = any (list_tasks.statuses)
   order by since, task.run_id, task.step_slug, task.task_index
   limit list_tasks.max_rows;
$$;
