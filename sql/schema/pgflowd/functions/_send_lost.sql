-- _send_lost(run_ids, step_slugs, task_indexes): sends new messages for those of these queued tasks whose
-- message is gone, and that do not wait; returns how many. The caller holds their runs and the tasks, as each
-- claim, report and retry does before it moves, archives or sends a message, or lets a task wait.
-- Called by: resend, sweep_attempts.   Locks: new messages.
create or replace function pgflowd._send_lost(run_ids uuid[], step_slugs text[], task_indexes int[])
returns int language plpgsql set search_path = '', pg_temp as $$
declare
  queue record;
  sent int := 0;
begin
  for queue in
    select task.queue_name as name, task.flow_slug, array_agg(task.run_id) as runs,
           array_agg(task.step_slug) as steps, array_agg(task.task_index) as indexes
      from unnest(_send_lost.run_ids, _send_lost.step_slugs, _send_lost.task_indexes) as one (run_id, step_slug, task_index)
      join pgflow.step_tasks as task using (run_id, step_slug, task_index)
     where task.status = 'queued' and not exists (
       select from pgflowd._visible_at(task.queue_name, array[task.message_id]))
       and not exists (
       select from pgflowd.waits as wait
        where wait.run_id = task.run_id and wait.step_slug = task.step_slug
          and wait.task_index = task.task_index)
     group by 1, 2 order by 1, 2
  loop
    update pgflow.step_tasks as task set message_id = new.msg_id
      from unnest(queue.runs, queue.steps, queue.indexes, pgflow._send_messages(
             queue.flow_slug, 0, queue.runs, queue.steps, queue.indexes))
             as new (run_id, step_slug, task_index, msg_id)
     where task.run_id = new.run_id and task.step_slug = new.step_slug
       and task.task_index = new.task_index;
    sent := sent + cardinality(queue.runs);
  end loop;
  return sent;
end $$;
