-- _requeue_stalled(run_ids, step_slugs, task_indexes, reason, only_lapsed, show): queues started tasks
-- again whose worker vanished, and returns them. The attempt is not spent: it closes as stalled, and the
-- count goes back, to 0 where a retry has revoked the attempt. That of a person closes as released: that
-- nobody came back says nothing about the task. With `only_lapsed` a live lease is left alone; that is
-- tested here, under the lock. Left alone are also tasks whose run or step has ended, and those that
-- have to be given up, which needs the lock of the run (see _give_up): tasks whose attempts stalled
-- `crash_limit` times in a row, and tasks that the core's recovery gave up, which have no message any
-- more. With `show` the messages become visible and the workers are woken; a claim that is about to
-- start the tasks itself keeps the messages hidden. A task that stalls again and again is left alone for
-- a while (_stall_pause): its message is hidden for so long, and without `show` it is not returned. The
-- caller holds the locks of the tasks.
-- Called by: _handle_unstarted, _recover_some.   Locks: attempts; queue rows, skipping.
create or replace function pgflowd._requeue_stalled(
  run_ids uuid[], step_slugs text[], task_indexes int[], reason text, only_lapsed boolean,
  show boolean default true)
returns setof pgflow.step_tasks language plpgsql set search_path = '', pg_temp as $$
declare
  requeued pgflow.step_tasks[];
  pauses interval[];
  queue record;
begin
  with stalled as (
    select attempt.run_id, attempt.step_slug, attempt.task_index, attempt.token, attempt.msg_id,
           person.is_one as is_of_person,
           case when not person.is_one
                then pgflowd._stall_pause(task.run_id, task.step_slug, task.task_index, stalls.times)
           end as pause
      from unnest(_requeue_stalled.run_ids, _requeue_stalled.step_slugs, _requeue_stalled.task_indexes)
           as given (run_id, step_slug, task_index)
     cross join lateral (
       select one.* from pgflow.step_tasks as one
        where one.run_id = given.run_id and one.step_slug = given.step_slug
          and one.task_index = given.task_index and one.status = 'started' offset 0) as task
      join pgflow.runs as run on run.run_id = task.run_id and run.status = 'started'
      join pgflow.step_states as state
        on state.run_id = task.run_id and state.step_slug = task.step_slug
       and state.status = 'started'
      join pgflowd.attempts as attempt
        on attempt.run_id = task.run_id and attempt.step_slug = task.step_slug
       and attempt.task_index = task.task_index and attempt.ended_at is null
       and attempt.attempt = task.attempts_count
       and attempt.worker_id = coalesce(task.last_worker_id, attempt.worker_id)
     cross join lateral (select pgflowd._is_person(attempt.worker_id) as is_one) as person
     cross join lateral (
       select pgflowd._stalled_in_a_row(task.run_id, task.step_slug, task.task_index) + 1 as times
       offset 0) as stalls
     where (attempt.lease_until < clock_timestamp() or not _requeue_stalled.only_lapsed)
       and task.permanently_stalled_at is null
       and (person.is_one
            or stalls.times < (pgflowd._crash_limit(task.run_id, task.step_slug)).most)
  ), closed as (
    update pgflowd.attempts as attempt
       set ended_at = now(), error_message = _requeue_stalled.reason,
           outcome = case when stalled.is_of_person then 'released' else 'stalled' end
      from stalled
     where attempt.run_id = stalled.run_id and attempt.step_slug = stalled.step_slug
       and attempt.task_index = stalled.task_index and attempt.token = stalled.token
  ), queued as (
    update pgflow.step_tasks as task
       set status = 'queued', started_at = null, last_worker_id = null,
           attempts_count = case when task.message_id is distinct from stalled.msg_id then 0
                                 else greatest(task.attempts_count - 1, 0) end
      from stalled
     where task.run_id = stalled.run_id and task.step_slug = stalled.step_slug
       and task.task_index = stalled.task_index
    returning task, stalled.pause
  )
  select array_agg(queued.task), array_agg(queued.pause) into requeued, pauses from queued;

  for queue in
    select task.queue_name as name, pauses[given.ord] as pause,
           array_agg(task.message_id) as msg_ids
      from generate_subscripts(requeued, 1) as given (ord)
     cross join lateral unnest(requeued[given.ord : given.ord]) as task
     where _requeue_stalled.show or pauses[given.ord] is not null group by 1, 2
  loop
    perform pgflowd._make_visible(queue.name, queue.msg_ids,
                                  clock_timestamp() + coalesce(queue.pause, interval '0'));
    perform pgflowd._ring(queue.name);
  end loop;
  return query
    select task.* from generate_subscripts(requeued, 1) as given (ord)
     cross join lateral unnest(requeued[given.ord : given.ord]) as task
     where _requeue_stalled.show or pauses[given.ord] is null;
end $$;
