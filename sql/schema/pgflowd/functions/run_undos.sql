-- run_undos(run_id): returns for each step of a run of which something is, or was, to be undone, how
-- many tasks that are, and how many of them are undone, have failed, or are open; as the last undo left
-- each. With the run of the last one, and an error of it.
-- Called by: commands.   Locks: nothing.
create or replace function pgflowd.run_undos(run_id uuid)
returns table (step_slug text, tasks int, undone int, failed int, open int, error text)
language sql stable set search_path = '', pg_temp as $$
  select last.step_slug, count(*)::int, count(*) filter (where last.state = 'undone')::int,
         count(*) filter (where last.state = 'failed')::int,
         count(*) filter (where last.state = 'open')::int, min(nullif(last.error, ''))
    from (select distinct on (task.step_slug, task.task_index) task.*
            from pgflowd.runs as run
           cross join lateral generate_series(1, run.undo_generation) as nr
           cross join lateral pgflowd._undo_tasks(pgflowd._undo_run_id(run.run_id, nr)) as task
           where run.run_id = run_undos.run_id
           order by task.step_slug, task.task_index, nr desc) as last
   group by last.step_slug;
$$;
