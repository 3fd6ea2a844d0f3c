-- _send_tasks(flow_slug, delay_s, run_ids, step_slugs, task_indexes): sends the messages and
-- inserts the rows of new tasks of a flow. A queue numbers messages in the order of sending,
-- which is the order of the tasks.
-- Called by: _create_tasks, start_flows.   Locks: the new rows.
create or replace function pgflow._send_tasks(
  flow_slug text, delay_s int, run_ids uuid[], step_slugs text[], task_indexes int[])
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  queue constant text := pgflow._queue_name(_send_tasks.flow_slug);
  messages jsonb[];
  sent bigint[];
begin
  messages := array(
    select jsonb_build_object('flow_slug', _send_tasks.flow_slug, 'run_id', task.run_id,
                              'step_slug', task.step_slug, 'task_index', task.task_index)
      from unnest(run_ids, step_slugs, task_indexes) with ordinality
             as task (run_id, step_slug, task_index, ord)
     order by task.ord);
  if cardinality(messages) = 1 then
    sent := array(select pgmq.send(queue, messages[1], delay_s));
  else
    sent := array(select one from pgmq.send_batch(queue, messages, delay_s) as one order by one);
  end if;
  insert into pgflow.step_tasks (flow_slug, run_id, step_slug, task_index, message_id)
  select _send_tasks.flow_slug, task.run_id, task.step_slug, task.task_index, task.message_id
    from unnest(run_ids, step_slugs, task_indexes, sent)
           as task (run_id, step_slug, task_index, message_id);
end $$;
