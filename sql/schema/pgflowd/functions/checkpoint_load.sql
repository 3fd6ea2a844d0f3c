-- checkpoint_load(run_id, step_slug, task_index): returns the checkpoints of a task by name, those of its
-- waits too. It needs no lease: an attempt reads what the one before it saved. PF021 for more than
-- 128 MiB, which signals may have brought: no worker could read it.
-- Called by: workers.   Locks: nothing.
create or replace function pgflowd.checkpoint_load(run_id uuid, step_slug text, task_index int)
returns table (name text, version int, saved_at timestamptz, data jsonb)
language plpgsql stable set search_path = '', pg_temp as $$
declare
  max_bytes constant bigint := 128 * 1024 * 1024;
  bytes bigint;
begin
  select sum(known.size) into bytes from pgflowd.checkpoints as known
   where known.run_id = checkpoint_load.run_id and known.step_slug = checkpoint_load.step_slug
     and known.task_index = checkpoint_load.task_index;
  if bytes > max_bytes then
    raise exception 'the checkpoints of % have % bytes, and % can be read', pgflowd._task_name(
      checkpoint_load.run_id, checkpoint_load.step_slug, checkpoint_load.task_index),
      bytes, max_bytes using errcode = 'PF021', hint = 'signal references to the data';
  end if;
  return query
    select known.name, known.version, known.saved_at, known.data
      from pgflowd.checkpoints as known
     where known.run_id = checkpoint_load.run_id and known.step_slug = checkpoint_load.step_slug
       and known.task_index = checkpoint_load.task_index
     order by known.name;
end $$;
