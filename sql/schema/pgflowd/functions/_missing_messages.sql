-- _missing_messages(flow_slug, run_ids, max_rows): returns I5 of these runs of one flow.
-- Called by: run_violations.   Locks: nothing.
create or replace function pgflowd._missing_messages(flow_slug text, run_ids uuid[], max_rows int)
returns table (invariant text, flow text, run_id uuid, step_slug text, task_index int, detail text)
language plpgsql stable set search_path = '' as $$
declare
  queue record;
begin
  for queue in
    select known.queue_name, tabled.oid
      from pgflowd._queues(_missing_messages.flow_slug) as known
     cross join lateral (select to_regclass(format(
       'pgmq.%I', pgmq.format_table_name(known.queue_name, 'q'))) as oid) as tabled
     where tabled.oid is not null
  loop
    return query execute format($query$
      select 'I5', task.flow_slug, task.run_id, task.step_slug, task.task_index,
             'the task is queued and has no message'
        from pgflow.runs as run
        join pgflow.step_tasks as task on task.run_id = run.run_id
        join pgflow.step_states as state
          on state.run_id = task.run_id and state.step_slug = task.step_slug
       where run.run_id = any ($1) and run.status = 'started' and state.status = 'started'
         and task.status = 'queued' and pgflowd._task_queue(task) = $3
         and not exists (select from %1$s as message where message.msg_id = task.message_id)
       limit $2
      $query$, queue.oid::regclass) using run_ids, max_rows, queue.queue_name;
  end loop;
end $$;
