-- _start_tasks(flow_slug, queue_name, only_step, msg_ids, worker_id): start the queued tasks of
-- these messages, and return them with the number of the attempt. A task queued after this
-- transaction began is left to a younger one. The visibility is the caller's matter.
-- Called by: claim.   Locks: tasks, skipping locked ones.
create or replace function pgflowd._start_tasks(
  flow_slug text, queue_name text, only_step text, msg_ids bigint[], worker_id uuid)
returns table (run_id uuid, step_slug text, task_index int, msg_id bigint,
               input jsonb, flow_input jsonb, attempt int)
language plpgsql rows 10 set search_path = '' set enable_seqscan = off as $$
#variable_conflict use_column
declare
  free bigint[];
  attempts int[];
begin
  select array_agg(locked.message_id), array_agg(locked.attempts_count + 1)
    into free, attempts
    from (select task.message_id, task.attempts_count
            from pgflow.step_tasks as task
           where task.flow_slug = _start_tasks.flow_slug
             and task.message_id = any(_start_tasks.msg_ids)
             and task.status = 'queued' and task.queued_at <= now()
             for no key update skip locked) as locked;
  if free is null then
    return;
  end if;
  return query
    select begun.run_id, begun.step_slug, begun.task_index, begun.msg_id,
           begun.input, begun.flow_input, known.attempt
      from pgflow._start_tasks(_start_tasks.flow_slug, free, _start_tasks.worker_id, 0) as begun
      join unnest(free, attempts) as known (msg_id, attempt) using (msg_id);
end $$;
