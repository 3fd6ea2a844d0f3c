-- _hold_task(run_id, step_slug, task_index, actor): returns the token by which this person may report a task:
-- that of their attempt, if they have one, or of one that begins now. A task that waits waits no
-- longer. PF002 for an unknown task, PF008 for one that somebody else executes, or that cannot begin, since
-- its run has ended, say, or is paused. The lease is short, since a report follows in the same
-- transaction.
-- Called by: task_complete, task_fail, task_release.
-- Locks: the run, the task, its wait, its message; see _person and _start_attempts.
create or replace function pgflowd._hold_task(
  run_id uuid, step_slug text, task_index int, actor text)
returns bigint language plpgsql set search_path = '', pg_temp as $$
declare
  task_name constant text := pgflowd._task_name(
    _hold_task.run_id, _hold_task.step_slug, _hold_task.task_index);
  run pgflow.runs;
  task pgflow.step_tasks;
  person uuid;
  held bigint;
  obstacle text;
begin
  select one.* into run from pgflow.runs as one where one.run_id = _hold_task.run_id for no key update;
  select one.* into task from pgflow.step_tasks as one
   where one.run_id = _hold_task.run_id and one.step_slug = _hold_task.step_slug
     and one.task_index = _hold_task.task_index for no key update;
  if not found then
    raise exception 'there is no %', task_name using errcode = 'PF002';
  end if;
  person := pgflowd._person(task.queue_name, _hold_task.actor);
  select max(attempt.token) into held from pgflowd.attempts as attempt
   where attempt.run_id = task.run_id and attempt.step_slug = task.step_slug
     and attempt.task_index = task.task_index and attempt.ended_at is null
     and attempt.attempt = task.attempts_count and attempt.worker_id = person
     and coalesce(task.last_worker_id, person) = person;
  obstacle := case
    when run.status <> 'started' then 'its run is ' || run.status
    when pgflowd._is_paused(task.run_id) then 'its run is paused'
    when exists (select from pgflowd.paused_flows as paused
                  where paused.flow_slug = task.flow_slug) then 'its flow is paused' end;
  if held is null and obstacle is null and task.status = 'queued' then
    perform pgflowd._free(array[task.run_id], array[task.step_slug], array[task.task_index]);
    select begun.token into held
      from pgflow.step_tasks as one
     cross join lateral pgflowd._queues(one.flow_slug) as queue
     cross join lateral pgflowd._start_attempts(
             one.flow_slug, queue.queue_name, queue.step_slug, array[one.message_id], person,
             clock_timestamp(), interval '1 minute', null) as begun
     where one.run_id = task.run_id and one.step_slug = task.step_slug
       and one.task_index = task.task_index and queue.queue_name = one.queue_name;
  end if;
  if held is null then
    raise exception '% cannot be taken: %', task_name,
      coalesce(obstacle, concat('it is ', (
        select known.status from pgflowd.task_status as known
         where known.run_id = task.run_id and known.step_slug = task.step_slug
           and known.task_index = task.task_index), ' by ' || (
        select worker.function_name from pgflow.workers as worker
         where worker.worker_id = task.last_worker_id and task.status = 'started')))
      using errcode = 'PF008',
            hint = 'only a task that is queued or waits can be taken; `tasks list` shows those';
  end if;
  return held;
end $$;
