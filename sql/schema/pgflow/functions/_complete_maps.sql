-- _complete_maps(run_ids, step_slugs): completes the maps among these steps, whose last tasks
-- are done. The output is the array of the tasks' outputs in the order of the index, SQL null as
-- null.
-- Called by: _complete_tasks.   Locks: the states (runs are locked already).
create or replace function pgflow._complete_maps(run_ids uuid[], step_slugs text[])
returns void language sql set search_path = '', pg_temp as $$
  update pgflow.step_states as state
     set status = 'completed', completed_at = greatest(now(), state.started_at),
         output = (select jsonb_agg(task.output order by task.task_index)
                     from pgflow.step_tasks as task
                    where task.run_id = state.run_id and task.step_slug = state.step_slug)
    from unnest(run_ids, step_slugs) as ended (run_id, step_slug)
   where state.run_id = ended.run_id and state.step_slug = ended.step_slug
     and state.status = 'started';
$$;
