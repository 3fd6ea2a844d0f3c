-- _requeue_step(run_id, step_slug): gives each unfinished task of a started step a new message and
-- all its attempts back; returns their number. The step counts all its tasks again.
-- Called by: retry.   Locks: messages; the caller holds run, step and tasks.
create or replace function pgflowd._requeue_step(run_id uuid, step_slug text)
returns int language plpgsql set search_path = '' as $$
declare
  task_indexes int[];
  old_ids bigint[];
  queue text;
  new_ids bigint[];
begin
  select array_agg(task.task_index order by task.task_index),
         array_agg(task.message_id), min(pgflowd._task_queue(task))
    into task_indexes, old_ids, queue
    from pgflow.step_tasks as task
   where task.run_id = _requeue_step.run_id and task.step_slug = _requeue_step.step_slug
     and task.status <> 'completed';
  if task_indexes is null then
    return 0;
  end if;
  perform pgmq.archive(queue, old_ids);
  select array_agg(sent.msg_id order by sent.ord) into new_ids
    from pgmq.send_batch(queue, (
           select array_agg(jsonb_build_object(
                    'flow_slug', state.flow_slug, 'run_id', state.run_id,
                    'step_slug', state.step_slug, 'task_index', planned.task_index)
                  order by planned.ord)
             from pgflow.step_states as state
            cross join unnest(task_indexes) with ordinality as planned (task_index, ord)
            where state.run_id = _requeue_step.run_id
              and state.step_slug = _requeue_step.step_slug), 0)
         with ordinality as sent (msg_id, ord);
  update pgflow.step_tasks as task
     set status = 'queued', message_id = new.msg_id, attempts_count = 0, started_at = null,
         failed_at = null, completed_at = null, output = null, error_message = null,
         last_worker_id = null
    from unnest(task_indexes, new_ids) as new (task_index, msg_id)
   where task.run_id = _requeue_step.run_id and task.step_slug = _requeue_step.step_slug
     and task.task_index = new.task_index;
  update pgflow.step_states as state
     set remaining_tasks = cardinality(task_indexes)
   where state.run_id = _requeue_step.run_id and state.step_slug = _requeue_step.step_slug;
  perform pgflowd._clear_stalls(_requeue_step.run_id, _requeue_step.step_slug);
  return cardinality(task_indexes);
end $$;
