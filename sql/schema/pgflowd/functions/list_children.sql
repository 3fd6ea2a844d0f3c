-- list_children(run_id, step_slug, task_index): returns the children that a task has started, and the run
-- that each is: itself, or the one that had its singleton key.
-- Called by: workers.   Locks: nothing.
create or replace function pgflowd.list_children(run_id uuid, step_slug text, task_index int)
returns table (child_id uuid, run_id uuid) language sql stable set search_path = '', pg_temp as $$
  select run.run_id, run.run_id from pgflowd.runs as run
   where run.parent_run_id = list_children.run_id and run.parent_step = list_children.step_slug
     and run.parent_index = list_children.task_index
   union all
  select substr(kept.name, length('runs ') + 1)::uuid, (kept.data ->> 'run')::uuid
    from pgflowd.checkpoints as kept
   where kept.run_id = list_children.run_id and kept.step_slug = list_children.step_slug
     and kept.task_index = list_children.task_index and kept.data ? 'run'
     and kept.name ~ '^runs [0-9a-f-]{36}$';
$$;
