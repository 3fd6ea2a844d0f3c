-- _sweep_unleased_task(run_id, step_slug, task_index, started_at, run_failed): queues a task
-- again that no lease holds, started at that time and not since. Returns `recovered`, `given_up`,
-- or null when it was neither.
-- It inserts a stalled attempt. A task that was queued again three times, by us or by upstream's
-- own recovery, is failed instead: upstream's recovery would leave it started for ever. For a
-- task of a failed run it calls fail_task.
-- Called by: _sweep_unleased.
-- Locks: the task, unless it is locked; its message, likewise; see _give_up.
create or replace function pgflowd._sweep_unleased_task(
  run_id uuid, step_slug text, task_index int, started_at timestamptz, run_failed boolean)
returns text language plpgsql set search_path = '', pg_temp as $$
declare
  task pgflow.step_tasks;
  times int;
begin
  select known.* into task from pgflow.step_tasks as known
   where known.run_id = _sweep_unleased_task.run_id and known.step_slug = _sweep_unleased_task.step_slug
     and known.task_index = _sweep_unleased_task.task_index and known.status = 'started'
     and known.started_at = _sweep_unleased_task.started_at
     for no key update skip locked;
  if not found or pgflowd._is_leased(task.run_id, task.step_slug, task.task_index) then
    return null;
  elsif _sweep_unleased_task.run_failed then
    if pgflowd._lock_run(task.run_id, 'failed') then
      perform pgflow.fail_task(task.run_id, task.step_slug, task.task_index,
                               'its worker vanished');
    end if;
    return null;
  end if;
  times := greatest(task.requeued_count,
                    pgflowd._stalled_in_a_row(task.run_id, task.step_slug, task.task_index));
  if times >= 3 then
    return case when pgflowd._give_up(
      task.run_id, task.step_slug, task.task_index,
      format('stalled, and was given back %s times before', times)) then 'given_up' end;
  end if;
  insert into pgflowd.attempts (run_id, step_slug, task_index, flow_slug, worker_id, msg_id,
    attempt, started_at, lease_until, ended_at, outcome, error_message)
  values (task.run_id, task.step_slug, task.task_index, task.flow_slug,
    coalesce(task.last_worker_id, '00000000-0000-0000-0000-000000000000'), task.message_id,
    task.attempts_count, task.started_at, task.started_at, now(), 'stalled',
    'its worker, which kept no lease, vanished');
  update pgflow.step_tasks as known
     set status = 'queued', started_at = null, last_worker_id = null
   where known.run_id = task.run_id and known.step_slug = task.step_slug
     and known.task_index = task.task_index;
  perform pgflowd._make_visible(task.queue_name, array[task.message_id], clock_timestamp());
  perform pgflowd._ring(task.queue_name);
  return 'recovered';
end $$;
