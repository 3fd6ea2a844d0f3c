-- _settle_tasks(run_ids, step_slugs, task_indexes, error_messages): completes tasks that have no attempt
-- left, of steps that settle: their output is {"$undo_failed": {"message": …}}, and the run goes on. So the
-- undo of one task that fails stops no other.
-- Called by: _fail_tasks.   Locks: see _complete_tasks.
create or replace function pgflow._settle_tasks(
  run_ids uuid[], step_slugs text[], task_indexes int[], error_messages text[])
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  update pgflow.step_tasks as task set error_message = given.error_message
    from unnest(run_ids, step_slugs, task_indexes, error_messages)
           as given (run_id, step_slug, task_index, error_message)
   where task.run_id = given.run_id and task.step_slug = given.step_slug
     and task.task_index = given.task_index;
  perform pgflow._complete_tasks(
    run_ids, step_slugs, task_indexes,
    array(select jsonb_build_object('$undo_failed', jsonb_build_object('message', message))
            from unnest(error_messages) with ordinality as given (message, ord) order by ord));
end $$;
