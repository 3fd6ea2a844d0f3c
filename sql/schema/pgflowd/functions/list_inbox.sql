-- list_inbox(max_rows): returns the tasks that wait for somebody, as list_tasks returns tasks: for a signal
-- or an approval, for a worker with a need, or in quarantine until somebody decides; the oldest first. It
-- looks at 20,000 of each kind, whatever else waits.
-- Called by: commands.   Locks: nothing.
create or replace function pgflowd.list_inbox(max_rows int default 200)
returns table (run_id uuid, step_slug text, task_index int, flow_slug text, status text,
               attempts int, kind text, name text, why text, since timestamptz,
               until timestamptz, is_unserved boolean, worker text, title text)
language sql stable set search_path = '', pg_temp as $$
  select wait.run_id, wait.step_slug, wait.task_index, task.flow_slug,
         pgflowd._task_status(task.status, wait.kind, wait.due_at, now()), task.attempts_count,
         wait.kind, wait.name, wait.why, wait.since, wait.due_at,
         wait.kind = 'need' and not pgflowd._is_served(task.flow_slug, wait.name), null::text,
         (select ours.title from pgflowd.runs as ours where ours.run_id = wait.run_id)
    from ((select one.* from pgflowd.waits as one where one.kind = 'signal'
            order by one.run_id, one.name, one.nr limit 20000)
           union all
          (select one.* from pgflowd.waits as one where one.kind = 'need'
            order by one.flow_slug, one.name, one.nr limit 20000)
           union all
          (select one.* from pgflowd.waits as one where one.kind = 'quarantined'
            order by one.since limit 20000)
           order by since, run_id, step_slug, task_index limit list_inbox.max_rows) as wait
   cross join lateral (
     select one.flow_slug, one.status, one.attempts_count from pgflow.step_tasks as one
      where one.run_id = wait.run_id and one.step_slug = wait.step_slug
        and one.task_index = wait.task_index offset 0) as task
   cross join lateral (
     select from pgflow.runs as one
      where one.run_id = wait.run_id and one.status = 'started' offset 0) as run
   order by wait.since, wait.run_id, wait.step_slug, wait.task_index;
$$;
