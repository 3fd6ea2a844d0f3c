-- _recover_unleased(stale_threshold, max_tasks): give back started tasks that no lease of ours
-- holds, because a worker of upstream's claimed them, `stale_threshold` after their timeout.
-- Each time leaves a stalled attempt behind. A task that was given back three times, by us or
-- by upstream's own recovery, is failed: there it would hang for ever. One whose run has failed
-- is told so. Returns the number given back.
-- Called by: recover_stalled.   Locks: tasks, skipping locked ones; see _give_up.
create or replace function pgflowd._recover_unleased(stale_threshold interval, max_tasks int)
returns int language plpgsql set search_path = '' as $$
declare
  stale record;
  given_back int := 0;
begin
  for stale in
    select task.run_id, task.step_slug, task.task_index, task.message_id, task.attempts_count,
           task.flow_slug, task.last_worker_id, task.started_at,
           run.status = 'failed' as run_failed, pgflowd._task_queue(task) as queue_name,
           greatest((to_jsonb(task) ->> 'requeued_count')::int, pgflowd._stalled_in_a_row(
             task.run_id, task.step_slug, task.task_index)) as times
      from pgflowd._started_tasks(null) as started
      join pgflow.step_tasks as task using (run_id, step_slug, task_index)
      join pgflow.runs as run on run.run_id = task.run_id
      join pgflow.step_states as state
        on state.run_id = task.run_id and state.step_slug = task.step_slug
      join pgflow.flows as flow on flow.flow_slug = task.flow_slug
      join pgflow.steps as step
        on step.flow_slug = task.flow_slug and step.step_slug = task.step_slug
     where task.status = 'started'
       and (run.status = 'failed' or (run.status = 'started' and state.status = 'started'))
       and task.started_at < now() - _recover_unleased.stale_threshold
             - make_interval(secs => coalesce(step.opt_timeout, flow.opt_timeout))
       and not exists (select from pgflowd.attempts as attempt
                        where attempt.run_id = task.run_id and attempt.step_slug = task.step_slug
                          and attempt.task_index = task.task_index and attempt.ended_at is null
                          and attempt.attempt = task.attempts_count
                          and attempt.worker_id = task.last_worker_id)
     limit _recover_unleased.max_tasks
       for no key update of task skip locked
  loop
    if stale.run_failed then
      perform pgflow.fail_task(stale.run_id, stale.step_slug, stale.task_index,
                               'its worker vanished');
      continue;
    elsif stale.times >= 3 then
      perform pgflowd._give_up(stale.run_id, stale.step_slug, stale.task_index, format(
        'stalled, and was given back %s times before', stale.times));
      continue;
    end if;
    insert into pgflowd.attempts (run_id, step_slug, task_index, flow_slug, worker_id, msg_id,
      attempt, started_at, lease_until, ended_at, outcome, error_message)
    values (stale.run_id, stale.step_slug, stale.task_index, stale.flow_slug,
      coalesce(stale.last_worker_id, '00000000-0000-0000-0000-000000000000'), stale.message_id,
      stale.attempts_count, stale.started_at, stale.started_at, now(), 'stalled',
      'its worker, which kept no lease, vanished');
    update pgflow.step_tasks as task
       set status = 'queued', started_at = null, last_worker_id = null
     where task.run_id = stale.run_id and task.step_slug = stale.step_slug
       and task.task_index = stale.task_index;
    perform pgflowd._show(stale.queue_name, array[stale.message_id], clock_timestamp());
    perform pgflowd._wake(stale.queue_name);
    given_back := given_back + 1;
  end loop;
  return given_back;
end $$;
