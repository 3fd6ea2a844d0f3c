-- _due_waits(max_rows): the tasks whose waits have been due for longest, of runs that are free.
-- They are taken in their order whatever the statistics say, hence no sort and no bitmap.
-- Called by: _end_due_waits, postpone_due.   Locks: the runs, skipping locked ones.
create or replace function pgflowd._due_waits(max_rows int)
returns table (run_id uuid, step_slug text, task_index int)
language plpgsql set search_path = '', pg_temp
set jit = off set enable_sort = off set enable_bitmapscan = off as $$
#variable_conflict use_column
begin
  return query
    select wait.run_id, wait.step_slug, wait.task_index
      from (select one.run_id, one.step_slug, one.task_index from pgflowd.waits as one
             where one.due_at <= now() order by one.due_at) as wait
     cross join lateral (
       select from pgflow.runs as one
        where one.run_id = wait.run_id offset 0 for no key update skip locked) as run
     limit max_rows;
end $$;
