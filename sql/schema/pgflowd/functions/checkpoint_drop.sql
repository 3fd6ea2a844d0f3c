-- checkpoint_drop(run_id, step_slug, task_index, token, name): deletes a checkpoint of the task, if
-- there is one of this name. `ok`; or `busy`, and nothing is done, if another transaction has the task
-- locked. PF001 when the token holds no live lease, PF002 for an unknown task, 22023 for the name of
-- what a wait received.
-- Called by: workers.   Locks: the task, without waiting; its checkpoint.
create or replace function pgflowd.checkpoint_drop(
  run_id uuid, step_slug text, task_index int, token bigint, name text)
returns text language plpgsql set search_path = '', pg_temp as $$
begin
  if checkpoint_drop.name ~ '^(sleep|signal|runs) ' then
    raise exception 'checkpoint % belongs to a wait', quote_literal(left(checkpoint_drop.name, 210))
      using errcode = '22023', hint = 'drop only what checkpoint_save has saved';
  elsif not pgflowd._lock_leased(checkpoint_drop.run_id, checkpoint_drop.step_slug,
                                 checkpoint_drop.task_index, checkpoint_drop.token) then
    return 'busy';
  end if;
  delete from pgflowd.checkpoints as known
   where known.run_id = checkpoint_drop.run_id and known.step_slug = checkpoint_drop.step_slug
     and known.task_index = checkpoint_drop.task_index and known.name = checkpoint_drop.name;
  return 'ok';
end $$;
