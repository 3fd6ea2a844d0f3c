-- read_original(run_id, step_slug, task_index, parts): returns the task that this one of an undo run
-- undoes, as read_originals; no row if the plan of the run has nothing for it. PF002 for a run that
-- undoes no other.
-- Called by: workers.   Locks: nothing.
create or replace function pgflowd.read_original(
  run_id uuid, step_slug text, task_index int, parts text[])
returns table (undo jsonb, output jsonb, run_input jsonb, item jsonb)
language plpgsql stable set search_path = '', pg_temp as $$
begin
  if not exists (select from pgflowd.runs as run
                  where run.run_id = read_original.run_id and run.undo_of is not null) then
    raise exception 'run % undoes no other', read_original.run_id using errcode = 'PF002',
      hint = '`pgflowd runs undo RUN` undoes a run';
  end if;
  return query
    select one.undo, one.output, one.run_input, one.item
      from pgflowd.read_originals(
             array[read_original.run_id], array[read_original.step_slug],
             array[read_original.task_index],
             jsonb_build_object(read_original.step_slug, read_original.parts)) as one;
end $$;
