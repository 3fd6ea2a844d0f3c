-- _requeue_released(elements, became): queues the released tasks among them again as if they had
-- not been claimed: visible after their delay, the attempt not spent. Tasks whose attempt a retry
-- has revoked begin anew at once, with all their attempts. Returns `became`, what tasks became by
-- their elements' places, with these added.
-- Called by: _pass_to_core.   Locks: messages; the caller holds the tasks.
create or replace function pgflowd._requeue_released(elements pgflowd.element[], became text[])
returns text[] language plpgsql set search_path = '', pg_temp as $$
declare
  released record;
  place int;
begin
  with requeued as (
    update pgflow.step_tasks as task
       set status = 'queued', started_at = null, last_worker_id = null,
           attempts_count = case when element.standing = 'revoked' then 0
                                 else greatest(task.attempts_count - 1, 0) end
      from unnest(elements) as element
     where element.outcome = 'released' and element.standing in ('live', 'revoked')
       and task.run_id = element.run_id and task.step_slug = element.step_slug
       and task.task_index = element.task_index
    returning element.ord, task.message_id,
              case when element.standing = 'live' then coalesce(element.delay, interval '0')
                   else interval '0' end as delay,
              task.queue_name as queue
  )
  select array_agg(requeued.ord) as ords, array_agg(requeued.queue) as queues,
         array_agg(requeued.message_id) as messages, array_agg(requeued.delay) as delays
    into released from requeued;
  if released.ords is not null then
    perform pgflowd._hide(released.queues, released.messages, released.delays);
    foreach place in array released.ords loop
      became[place] := 'queued';
    end loop;
  end if;
  return became;
end $$;
