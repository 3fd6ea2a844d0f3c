-- _wait_cycles(): the runs that wait, without an end to their patience, for one which waits for them, directly
-- or through others: a task for the end of a run, a planned run for others, or in line for a singleton key.
-- `awaited`: for which one they wait first. In each cycle a task waits, so it begins at tasks that wait for
-- runs, ten thousand at most; without any it is one look into an index.
-- Called by: undecided_tasks.   Locks: nothing.
create or replace function pgflowd._wait_cycles()
returns table (flow_slug text, run_id uuid, awaited uuid)
language plpgsql stable set search_path = '', pg_temp set jit = off as $$
#variable_conflict use_column
begin
  return query
    with recursive way as (
      select wait.flow_slug, one.run_id as first, one.awaited as second, one.awaited as last
        from (select task.* from pgflowd.awaits as task
               where task.step_slug <> '' and task.has_completed is null limit 10000) as one
       cross join lateral (
         select known.flow_slug from pgflowd.waits as known
          where known.run_id = one.run_id and known.step_slug = one.step_slug
            and known.task_index = one.task_index and known.due_at is null and known.rest is null offset 0) as wait
      union
      select way.flow_slug, way.first, way.second, next.id
        from way
       cross join lateral (
         select one.awaited as id from pgflowd.awaits as one
          where one.run_id = way.last and one.has_completed is null
            and (one.step_slug = '' or exists (
              select from pgflowd.waits as known
               where known.run_id = one.run_id and known.step_slug = one.step_slug
                 and known.task_index = one.task_index and known.due_at is null and known.rest is null offset 0))
         union all
         select holder.run_id
           from pgflowd.runs as blocked
           join pgflowd.runs as holder
             on holder.singleton_key = blocked.singleton_key and holder.holds_key
          where blocked.run_id = way.last and blocked.state = 'planned'
            and blocked.after_mode is null) as next
       where way.last <> way.first
    )
    select distinct on (found.first) found.flow_slug, found.first, found.second
      from (select way.* from way limit 50000) as found
     where found.last = found.first order by found.first limit 100;
end $$;
