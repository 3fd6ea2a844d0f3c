-- _fail_unstarted(flow_slug, msg_id, worker_id, state, reason): fails the task of this message,
-- which could not be started, as if its worker had reported that: an attempt is spent, or, where
-- the next one would end in the same way (classes 22 and 54), all of them. It waits for nothing:
-- if another transaction has locked the run, or a task of it that would end too, nothing is done,
-- and a later claim meets the message again. A notice, PF012, says what was done: its detail is an
-- object with run, step, task_index, token, attempt, max_attempts, error, verdict and run_status.
-- Called by: _start_each, pgflow._start_apart.
-- Locks: the task, its run, and all open tasks of that if it fails for good; then as _report_all.
create or replace function pgflowd._fail_unstarted(
  flow_slug text, msg_id bigint, worker_id uuid, state text, reason text)
returns void language plpgsql set search_path = '', pg_temp set jit = off set enable_seqscan = off as $$
declare
  hopeless constant boolean := left(state, 2) in ('22', '54');
  problem constant text := left(format('the task could not be started: %s (%s)', reason, state), 4000);
  task pgflow.step_tasks;
  max_attempts int;
  token bigint;
  answer pgflowd.answer;
begin
  select known.* into task from pgflow.step_tasks as known
   where known.flow_slug = _fail_unstarted.flow_slug and known.message_id = _fail_unstarted.msg_id
     and known.status = 'queued' for no key update skip locked;
  if not found then
    return;
  end if;
  select coalesce(step.opt_max_attempts, flow.opt_max_attempts) into max_attempts
    from pgflow.steps as step
    join pgflow.flows as flow on flow.flow_slug = step.flow_slug
   where step.flow_slug = task.flow_slug and step.step_slug = task.step_slug;
  if hopeless or task.attempts_count + 1 >= max_attempts then
    if not pgflowd._lock_run(task.run_id, 'started') then
      return;
    end if;
  else
    perform from pgflow.runs as run where run.run_id = task.run_id and run.status = 'started'
      for no key update skip locked;
    if not found then
      return;
    end if;
  end if;

  update pgflow.step_tasks as known
     set status = 'started', started_at = greatest(now(), known.queued_at),
         attempts_count = known.attempts_count + 1, last_worker_id = _fail_unstarted.worker_id
   where known.run_id = task.run_id and known.step_slug = task.step_slug
     and known.task_index = task.task_index;
  insert into pgflowd.attempts as lease (run_id, step_slug, task_index, flow_slug, worker_id, msg_id,
                                         attempt, lease_until)
  values (task.run_id, task.step_slug, task.task_index, task.flow_slug, _fail_unstarted.worker_id,
          task.message_id, task.attempts_count + 1, clock_timestamp())
  returning lease.token into token;
  answer := (pgflowd._report_all(array[(
    1, task.run_id, task.step_slug, task.task_index, token, 'failed', problem, 'Refused', null,
    not hopeless, null, null, null, null, null, null, null)::pgflowd.element], array[null::jsonb]))[1];
  raise notice 'a task has failed, since it could not be started'
    using errcode = 'PF012', detail = jsonb_build_object(
      'run', task.run_id, 'step', task.step_slug, 'task_index', task.task_index, 'token', token,
      'attempt', task.attempts_count + 1, 'max_attempts', max_attempts, 'error', problem,
      'verdict', answer.verdict, 'run_status', answer.run_status)::text;
end $$;
