-- _end_due_waits(max_rows): ends waits that are due; returns how many it has dealt with. Where
-- freeing a task raises, it is tried again in a minute, and the others are freed; a notice, PF013,
-- says which: its detail is an object with run, step, task_index and error.
-- Called by: process_due.   Locks: see _due_waits and _free.
create or replace function pgflowd._end_due_waits(max_rows int)
returns int language plpgsql set search_path = '', pg_temp as $$
declare
  found_due record;
  due record;
begin
  select array_agg(wait.run_id) as run_ids, array_agg(wait.step_slug) as step_slugs,
         array_agg(wait.task_index) as task_indexes
    into found_due from pgflowd._due_waits(_end_due_waits.max_rows) as wait;
  -- once more, since a wait may have ended before its run was locked
  select array_agg(wait.run_id) as run_ids, array_agg(wait.step_slug) as step_slugs,
         array_agg(wait.task_index) as task_indexes, count(*)::int as number
    into due
    from unnest(found_due.run_ids, found_due.step_slugs, found_due.task_indexes)
         as given (run_id, step_slug, task_index)
   cross join lateral (
     select one.* from pgflowd.waits as one
      where one.run_id = given.run_id and one.step_slug = given.step_slug
        and one.task_index = given.task_index offset 0) as wait
   where wait.due_at <= now();
  begin
    perform pgflowd._end_waits(due.run_ids, due.step_slugs, due.task_indexes)
      where due.number > 0;
  exception when others then
    for i in 1 .. due.number loop
      begin
        perform pgflowd._end_waits(due.run_ids[i : i], due.step_slugs[i : i],
                                   due.task_indexes[i : i]);
      exception when others then
        update pgflowd.waits as wait set due_at = now() + interval '1 minute'
         where wait.run_id = due.run_ids[i] and wait.step_slug = due.step_slugs[i]
           and wait.task_index = due.task_indexes[i];
        raise notice '% cannot be freed: %', pgflowd._task_name(
          due.run_ids[i], due.step_slugs[i], due.task_indexes[i]), sqlerrm
          using errcode = 'PF013', detail = jsonb_build_object(
            'run', due.run_ids[i], 'step', due.step_slugs[i], 'task_index', due.task_indexes[i],
            'error', sqlerrm);
      end;
    end loop;
  end;
  return due.number;
end $$;
