-- step_strip(run_id, step_slug, cells): returns the tasks of a step in so many cells of the same length,
-- by their indexes, and how many of each cell have which status. A queued task that waits counts as
-- waiting only. No row for a step without tasks.
-- Called by: `pgflowd runs tasks`.   Locks: nothing.
create or replace function pgflowd.step_strip(run_id uuid, step_slug text, cells int default 200)
returns table (first_index int, last_index int, queued int, waiting int, started int, completed int,
               failed int, skipped int)
language sql stable set search_path = '', pg_temp as $$
  with size as (
    select one.task_index + 1 as tasks, (one.task_index / step_strip.cells) + 1 as width
      from pgflow.step_tasks as one
     where one.run_id = step_strip.run_id and one.step_slug = step_strip.step_slug
     order by one.task_index desc limit 1),
  counted as (
    select one.task_index / size.width as cell, one.status, count(*)::int as tasks
      from size
     cross join lateral (
       select task.task_index, task.status from pgflow.step_tasks as task
        where task.run_id = step_strip.run_id and task.step_slug = step_strip.step_slug offset 0) as one
     group by 1, 2),
  waits as (
    select wait.task_index / size.width as cell, count(*)::int as tasks
      from size
     cross join lateral (
       select one.task_index from pgflowd.waits as one
        where one.run_id = step_strip.run_id and one.step_slug = step_strip.step_slug offset 0) as wait
     group by 1)
  select counted.cell * size.width, least((counted.cell + 1) * size.width, size.tasks) - 1,
         coalesce(sum(counted.tasks) filter (where counted.status = 'queued'), 0)::int
           - coalesce(max(waits.tasks), 0),
         coalesce(max(waits.tasks), 0),
         coalesce(sum(counted.tasks) filter (where counted.status = 'started'), 0)::int,
         coalesce(sum(counted.tasks) filter (where counted.status = 'completed'), 0)::int,
         coalesce(sum(counted.tasks) filter (where counted.status = 'failed'), 0)::int,
         coalesce(sum(counted.tasks) filter (where counted.status = 'skipped'), 0)::int
    from size
   cross join counted
    left join waits on waits.cell = counted.cell
   group by counted.cell, size.width, size.tasks
   order by counted.cell;
$$;
