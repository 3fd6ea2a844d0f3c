-- list_checkpoints(run_id, max_rows): returns what the tasks of a run have saved, in the order of steps and
-- tasks, those of a task in the order of saving.
-- Called by: commands.   Locks: nothing.
create or replace function pgflowd.list_checkpoints(run_id uuid, max_rows int default 1000)
returns table (step_slug text, task_index int, name text, version int, saved_at timestamptz,
               data jsonb)
language sql stable set search_path = '', pg_temp as $$
  select saved.step_slug, saved.task_index, saved.name, saved.version, saved.saved_at, saved.data
    from pgflowd.checkpoints as saved
   where saved.run_id = list_checkpoints.run_id
   order by saved.step_slug, saved.task_index, saved.saved_at, saved.name
   limit list_checkpoints.max_rows;
$$;
