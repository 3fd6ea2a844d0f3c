-- _send_again(queue_name, flow_slug, run_ids, step_slugs, task_indexes, hidden_s): sends a new message
-- for each of these tasks of one flow, hidden for so long; returns the ids, in the order of the tasks.
-- Called by: _free, _requeue_step, requeue_task, _send_lost.   Locks: the new rows; the caller holds the tasks.
create or replace function pgflowd._send_again(
  queue_name text, flow_slug text, run_ids uuid[], step_slugs text[], task_indexes int[],
  hidden_s int default 0)
returns bigint[] language plpgsql set search_path = '', pg_temp as $$
begin
  return array(
    select sent.msg_id
      from pgmq.send_batch(_send_again.queue_name, array(
             select jsonb_build_object('flow_slug', _send_again.flow_slug, 'run_id', task.run_id,
                                       'step_slug', task.step_slug, 'task_index', task.task_index)
               from unnest(_send_again.run_ids, _send_again.step_slugs, _send_again.task_indexes)
                    with ordinality as task (run_id, step_slug, task_index, ord)
              order by task.ord), hidden_s) as sent (msg_id)
     order by sent.msg_id);
end $$;
