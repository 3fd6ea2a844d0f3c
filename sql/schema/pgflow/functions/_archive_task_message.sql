-- _archive_task_message(p_run_id, p_step_slug, p_task_index): archives one task's message.
-- Called by: workers of other runtimes, operators.   Locks: the message.
create or replace function pgflow._archive_task_message(
  p_run_id uuid, p_step_slug text, p_task_index int)
returns void language sql set search_path = '', pg_temp as $$
  select pgflow._archive(array_agg(task.flow_slug), array_agg(task.message_id))
    from pgflow.step_tasks as task
   where task.run_id = p_run_id and task.step_slug = p_step_slug
     and task.task_index = p_task_index
  having count(*) > 0;
$$;
