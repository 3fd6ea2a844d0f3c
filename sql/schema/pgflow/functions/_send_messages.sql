-- _send_messages(flow_slug, delay_s, run_ids, step_slugs, task_indexes): sends a message for each of
-- these tasks, in their order, visible after the delay; returns their ids. It inserts them as pgmq.send
-- does, by one statement for any number; for one message pgmq's functions take a quarter longer.
-- Called by: _send_tasks, start_flows, pgflowd._free, pgflowd._requeue_step, pgflowd._send_lost,
-- pgflowd.requeue_task.   Locks: the new rows.
create or replace function pgflow._send_messages(
  flow_slug text, delay_s int, run_ids uuid[], step_slugs text[], task_indexes int[])
returns bigint[] language plpgsql set search_path = '', pg_temp as $$
declare
  queue constant text := 'q_' || pgflow._queue_name(flow_slug);
  visible_at constant timestamptz := clock_timestamp() + make_interval(secs => delay_s);
  sent bigint[];
begin
  if cardinality(run_ids) = 1 then
    execute format('insert into pgmq.%I (vt, message) values ($1, $2) returning array[msg_id]', queue)
       into sent
      using visible_at, jsonb_build_object('flow_slug', flow_slug, 'run_id', run_ids[1],
                                           'step_slug', step_slugs[1], 'task_index', task_indexes[1]);
  else
    execute format(
      'with sent as (
         insert into pgmq.%I (vt, message)
         select $1, jsonb_build_object(''flow_slug'', $2, ''run_id'', task.run_id,
                                       ''step_slug'', task.step_slug, ''task_index'', task.index)
           from unnest($3, $4, $5) with ordinality as task (run_id, step_slug, index, ord)
          order by task.ord
         returning msg_id)
       select array_agg(sent.msg_id order by sent.msg_id) from sent', queue)
       into sent using visible_at, flow_slug, run_ids, step_slugs, task_indexes;
  end if;
  return sent;
end $$;
