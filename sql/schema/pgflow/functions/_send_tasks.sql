-- _send_tasks(flow_slug, delay_s, run_ids, step_slugs, task_indexes): sends the messages and
-- inserts the rows of new tasks of a flow. A queue numbers messages in the order of sending,
-- which is the order of the tasks.
-- Called by: _create_tasks.   Locks: the new rows.
create or replace function pgflow._send_tasks(
  flow_slug text, delay_s int, run_ids uuid[], step_slugs text[], task_indexes int[])
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  insert into pgflow.step_tasks (flow_slug, run_id, step_slug, task_index, message_id, queued_at)
  select _send_tasks.flow_slug, task.run_id, task.step_slug, task.task_index, task.message_id,
         pgflow._moment()
    from unnest(run_ids, step_slugs, task_indexes,
                pgflow._send_messages(flow_slug, delay_s, run_ids, step_slugs, task_indexes))
           as task (run_id, step_slug, task_index, message_id);
end $$;
