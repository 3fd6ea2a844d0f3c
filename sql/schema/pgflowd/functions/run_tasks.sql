-- run_tasks(run_id, step_slug, statuses, after_index, max_tasks, max_seen): returns tasks of a step in
-- their order, those after this index, as people know them, and of each the last attempt that is kept.
-- With statuses only tasks that have one of these, among `max_seen` of them at most. `searched_to` is
-- the index after which the next page begins, null if there is none; so that it can be told, one row
-- without a task is returned where none is found. The attempts and the statuses are looked up one by
-- one, in the order of the tasks, hence no sort.
-- Called by: `pgflowd runs tasks`.   Locks: nothing.
create or replace function pgflowd.run_tasks(
  run_id uuid, step_slug text, statuses text[] default null, after_index int default -1,
  max_tasks int default 50, max_seen int default 20000)
returns table (task_index int, status text, attempts int, kind text, name text, why text,
               since timestamptz, until timestamptz, attempt int, outcome text, started_at timestamptz,
               ended_at timestamptz, error_type text, error_message text, worker text,
               searched_to int)
language sql stable set search_path = '', pg_temp
set jit = off set enable_sort = off set enable_bitmapscan = off as $$
  with seen as (
    select one.task_index, one.status
      from pgflow.step_tasks as one
     where one.run_id = run_tasks.run_id and one.step_slug = run_tasks.step_slug
       and one.task_index > run_tasks.after_index
     order by one.task_index
     limit case when run_tasks.statuses is null then run_tasks.max_tasks else run_tasks.max_seen end),
  found as (
    select judged.*
      from (select one.task_index from seen as one
             where run_tasks.statuses is null
                or one.status = any (array(  -- of others nothing is looked up
                     select case when given.status in ('leased', 'lapsed') then 'started'
                                 when given.status in ('completed', 'failed', 'skipped') then given.status
                                 else 'queued' end
                       from unnest(run_tasks.statuses) as given (status)))) as one
     cross join lateral (
       select task.* from pgflowd.task_status as task
        where task.run_id = run_tasks.run_id and task.step_slug = run_tasks.step_slug
          and task.task_index = one.task_index offset 0) as judged
     where run_tasks.statuses is null or judged.status = any (run_tasks.statuses)
     limit run_tasks.max_tasks),
  page as (
    select case when (select count(*) from found) = run_tasks.max_tasks
                  then (select max(one.task_index) from found as one)
                when run_tasks.statuses is not null and (select count(*) from seen) = run_tasks.max_seen
                  then (select max(one.task_index) from seen as one) end as searched_to)
  select task.task_index, task.status, task.attempts, task.kind, task.name, task.why, task.since,
         task.until, last.attempt, last.outcome, last.started_at, last.ended_at, last.error_type,
         last.error_message, last.worker, page.searched_to
    from page
    left join found as task on true
    left join lateral (
      select one.attempt, one.outcome, one.started_at, one.ended_at, one.error_type, one.error_message,
             (select worker.function_name from pgflow.workers as worker
               where worker.worker_id = one.worker_id) as worker
        from pgflowd.attempts as one
       where one.run_id = run_tasks.run_id and one.step_slug = run_tasks.step_slug
         and one.task_index = task.task_index
       order by one.token desc limit 1) as last on true
   order by task.task_index;
$$;
