-- _cancel_tasks(run_id, error_message): ends a run's open tasks and their waits, archives their
-- messages, and wakes the workers of their queues.
-- Called by: _cancel.   Locks: messages, waits; the caller holds run, steps and tasks.
create or replace function pgflowd._cancel_tasks(run_id uuid, error_message text)
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  knows_cancelled boolean := exists (
    select from pg_constraint as rule
     where rule.conrelid = 'pgflow.step_tasks'::regclass and rule.contype = 'c'
       and pg_get_constraintdef(rule.oid) like '%''cancelled''%');
  queue record;
begin
  for queue in
    select task.queue_name as name, array_agg(task.message_id) as msg_ids
      from pgflow.step_tasks as task
     where task.run_id = _cancel_tasks.run_id and task.status not in ('completed', 'failed')
     group by 1 order by 1
  loop
    perform pgflow._archive(queue.name, queue.msg_ids);
    perform pgflowd._wake(queue.name);
  end loop;
  delete from pgflowd.waits as wait where wait.run_id = _cancel_tasks.run_id;
  update pgflow.step_tasks as task
     set status = case when knows_cancelled then 'cancelled' else 'failed' end,
         failed_at = case when not knows_cancelled
                          then greatest(now(), task.started_at, task.queued_at) end,
         error_message = _cancel_tasks.error_message
   where task.run_id = _cancel_tasks.run_id and task.status in ('queued', 'started');
end $$;
