-- _quarantine(run_id, step_slug, task_index, why): sets a started task aside, since it has ended too many
-- workers: it is queued, its attempt unspent, and waits until somebody requeues, fails or completes it,
-- wakes it, or ends its run. The other tasks of the run go on. Its attempt closes as stalled with E408, from
-- which stalls count anew. A notice, PF014, says so: its detail is an object with run, flow, step,
-- task_index and error.
-- Called by: _recover_some.   Locks: attempts, messages, waits; the caller holds the task.
create or replace function pgflowd._quarantine(
  run_id uuid, step_slug text, task_index int, why text)
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  flow text;
begin
  update pgflowd.attempts as attempt
     set ended_at = now(), outcome = 'stalled', error_type = 'E408',
         error_message = _quarantine.why
   where attempt.run_id = _quarantine.run_id and attempt.step_slug = _quarantine.step_slug
     and attempt.task_index = _quarantine.task_index and attempt.ended_at is null;
  update pgflow.step_tasks as task
     set status = 'queued', started_at = null, last_worker_id = null,
         attempts_count = greatest(task.attempts_count - 1, 0)
   where task.run_id = _quarantine.run_id and task.step_slug = _quarantine.step_slug
     and task.task_index = _quarantine.task_index
  returning task.flow_slug into flow;
  perform pgflowd._clear_stalls(_quarantine.run_id, _quarantine.step_slug);
  perform pgflowd._put_aside(
    array[_quarantine.run_id], array[_quarantine.step_slug], array[_quarantine.task_index],
    'quarantined', null, _quarantine.why);
  raise notice 'a task was set aside, since it has ended too many workers'
    using errcode = 'PF014', detail = jsonb_build_object(
      'run', _quarantine.run_id, 'flow', flow, 'step', _quarantine.step_slug,
      'task_index', _quarantine.task_index, 'error', _quarantine.why)::text;
end $$;
