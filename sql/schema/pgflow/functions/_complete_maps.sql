-- _complete_maps(run_ids, step_slugs): completes the maps among these steps, whose last tasks
-- are done. The output is the array of the tasks' outputs in the order of the index, SQL null as
-- null. Raises 54000 when they are more than a jsonb can hold; see _join_outputs.
-- Called by: _complete_tasks.   Locks: the states (runs are locked already).
create or replace function pgflow._complete_maps(run_ids uuid[], step_slugs text[])
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  map record;
begin
  for map in
    select ended.run_id, ended.step_slug
      from unnest(_complete_maps.run_ids, _complete_maps.step_slugs) as ended (run_id, step_slug)
     cross join lateral (
       select sum(pg_column_size(task.output)) as bytes from pgflow.step_tasks as task
        where task.run_id = ended.run_id and task.step_slug = ended.step_slug) as stored
     where stored.bytes > 1000000
  loop
    if (select sum(pg_column_size(task.output #> '{}') + 8) from pgflow.step_tasks as task
         where task.run_id = map.run_id and task.step_slug = map.step_slug) > 268435455 then
      raise exception
        'the outputs of map step % together are larger than 256 MB, the most that jsonb holds',
        map.step_slug using errcode = 'program_limit_exceeded',
        hint = 'let its tasks return less';
    end if;
  end loop;
  update pgflow.step_states as state
     set status = 'completed', completed_at = greatest(pgflow._moment(), state.started_at),
         output = (select to_jsonb(array_agg(task.output order by task.task_index))
                     from pgflow.step_tasks as task
                    where task.run_id = state.run_id and task.step_slug = state.step_slug)
    from unnest(run_ids, step_slugs) as ended (run_id, step_slug)
   where state.run_id = ended.run_id and state.step_slug = ended.step_slug
     and state.status = 'started';
end $$;
