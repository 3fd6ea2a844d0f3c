-- _free(run_ids, step_slugs, task_indexes, hidden_s): these tasks wait no longer: their waits are
-- deleted, and each gets a message, in the order in which they began to wait, hidden for so long.
-- Returns the messages; one that does not wait is left alone. In a paused run they wait for the resume
-- instead. They count as queued from now on, so no wait is taken for a time in which no worker was free.
-- Called by: _end_waits, _give_slot, _hold_task, _resume, _take_needed.
-- Locks: waits, tasks, new messages; the caller holds the runs, or the tasks.
create or replace function pgflowd._free(
  run_ids uuid[], step_slugs text[], task_indexes int[], hidden_s int default 0)
returns bigint[] language plpgsql set search_path = '', pg_temp as $$
declare
  paused constant uuid[] := array(
    select run.run_id from pgflowd.runs as run
     where run.run_id = any (_free.run_ids) and run.paused_at is not null);
  queue record;
  sent bigint[];
  freed bigint[] := '{}';
begin
  if paused <> '{}' then
    update pgflowd.waits as wait
       set kind = 'paused', name = null, checkpoint = null, due_at = null, rest = null, why = null,
           since = now(), is_paused = false
      from unnest(_free.run_ids, _free.step_slugs, _free.task_indexes)
           as given (run_id, step_slug, task_index)
     where given.run_id = any (paused)
       and wait.run_id = given.run_id and wait.step_slug = given.step_slug
       and wait.task_index = given.task_index;
  end if;
  for queue in
    with ended as (
      delete from pgflowd.waits as wait
       using unnest(_free.run_ids, _free.step_slugs, _free.task_indexes)
             as given (run_id, step_slug, task_index)
       where wait.run_id = given.run_id and wait.step_slug = given.step_slug
         and wait.task_index = given.task_index and given.run_id <> all (paused)
      returning wait.run_id, wait.step_slug, wait.task_index, wait.nr
    )
    select task.queue as name, task.flow_slug, array_agg(ended.run_id order by ended.nr) as runs,
           array_agg(ended.step_slug order by ended.nr) as steps,
           array_agg(ended.task_index order by ended.nr) as indexes
      from ended
     cross join lateral (
       select one.flow_slug, one.queue_name as queue from pgflow.step_tasks as one
        where one.run_id = ended.run_id and one.step_slug = ended.step_slug
          and one.task_index = ended.task_index and one.status = 'queued' offset 0) as task
     cross join lateral (
       select from pgflow.runs as one
        where one.run_id = ended.run_id and one.status = 'started' offset 0) as run
     cross join lateral (
       select from pgflow.step_states as one
        where one.run_id = ended.run_id and one.step_slug = ended.step_slug
          and one.status = 'started' offset 0) as state
     group by 1, 2 order by 1, 2
  loop
    sent := pgflow._send_messages(queue.flow_slug, hidden_s, queue.runs, queue.steps, queue.indexes);
    update pgflow.step_tasks as task set message_id = new.msg_id, queued_at = now()
      from unnest(queue.runs, queue.steps, queue.indexes, sent)
             as new (run_id, step_slug, task_index, msg_id)
     where task.run_id = new.run_id and task.step_slug = new.step_slug
       and task.task_index = new.task_index;
    freed := freed || sent;
  end loop;
  return freed;
end $$;
