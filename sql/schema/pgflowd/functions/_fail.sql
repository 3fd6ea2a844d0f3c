-- _fail(task, error_message, retry, delay, attempt, live): reports a failure to the core.
-- Without `retry` the attempts are spent first. `delay` moves the message of a task that is tried
-- again. Upstream's delay overflows after some thirty attempts, and then no failure could be
-- recorded, so the count is lowered for the call.
-- Called by: _become.   Locks: the message; the caller holds run, step state and task.
create or replace function pgflowd._fail(
  task pgflow.step_tasks, error_message text, retry boolean, delay interval, attempt int,
  live boolean)
returns void language plpgsql set search_path = '' as $$
declare
  queue text := pgflowd._task_queue(task);
  max_attempts int;
  base_delay int;
  most int;
  became text;
begin
  select coalesce(step.opt_max_attempts, flow.opt_max_attempts),
         coalesce(step.opt_base_delay, flow.opt_base_delay)
    into max_attempts, base_delay
    from pgflow.steps as step
    join pgflow.flows as flow on flow.flow_slug = step.flow_slug
   where step.flow_slug = task.flow_slug and step.step_slug = task.step_slug;
  most := case when base_delay > 0
               then floor(log(2, 2147483647.0 / base_delay)) end;
  if live and not _fail.retry and _fail.attempt < max_attempts then
    perform pgflowd._set_attempts_count(task, max_attempts);
  elsif live and _fail.attempt < max_attempts and _fail.attempt > most then
    perform pgflowd._set_attempts_count(task, most);
  end if;

  perform pgflow.fail_task(task.run_id, task.step_slug, task.task_index, _fail.error_message);

  select known.status into became from pgflow.step_tasks as known
   where known.run_id = task.run_id and known.step_slug = task.step_slug
     and known.task_index = task.task_index;
  if not live or became <> 'queued' then
    return;
  end if;
  if _fail.attempt > most then
    perform pgflowd._set_attempts_count(task, _fail.attempt);
  end if;
  if _fail.delay is not null then
    perform pgmq.set_vt(queue, task.message_id,
                        ceil(extract(epoch from _fail.delay))::int);
  end if;
  if coalesce(_fail.delay, make_interval(secs => base_delay)) <= interval '0' then
    perform pgflowd._wake(queue);
  end if;
end $$;
