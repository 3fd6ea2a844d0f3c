-- _fail_reported(element): reports a failure to the foreign core.
-- Without `retry` the attempts are spent first. `delay` moves the message of a task that is tried
-- again. Upstream's delay overflows after some thirty attempts, and then no failure could be
-- recorded, so the count is lowered for the call.
-- Called by: _pass_to_core.   Locks: the message; the caller holds run, step state and task.
create or replace function pgflowd._fail_reported(element pgflowd.element)
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  is_live constant boolean := element.standing = 'live';
  task pgflow.step_tasks;
  max_attempts int;
  base_delay int;
  most int;
  became text;
begin
  select known.* into task from pgflow.step_tasks as known
   where known.run_id = element.run_id and known.step_slug = element.step_slug
     and known.task_index = element.task_index;
  select coalesce(step.opt_max_attempts, flow.opt_max_attempts),
         coalesce(step.opt_base_delay, flow.opt_base_delay)
    into max_attempts, base_delay
    from pgflow.steps as step
    join pgflow.flows as flow on flow.flow_slug = step.flow_slug
   where step.flow_slug = task.flow_slug and step.step_slug = task.step_slug;
  most := case when base_delay > 0
               then floor(log(2, 2147483647.0 / base_delay)) end;
  if is_live and not element.retry and task.attempts_count < max_attempts then
    perform pgflowd._set_attempts_count(task, max_attempts);
  elsif is_live and task.attempts_count < max_attempts and task.attempts_count > most then
    perform pgflowd._set_attempts_count(task, most);
  end if;

  perform pgflow.fail_task(task.run_id, task.step_slug, task.task_index, element.error_message);

  select known.status into became from pgflow.step_tasks as known
   where known.run_id = task.run_id and known.step_slug = task.step_slug
     and known.task_index = task.task_index;
  if not is_live or became <> 'queued' then
    return;
  end if;
  if task.attempts_count > most then
    perform pgflowd._set_attempts_count(task, task.attempts_count);
  end if;
  if element.delay is not null then
    perform pgmq.set_vt(pgflowd._task_queue(task), task.message_id,
                        ceil(extract(epoch from element.delay))::int);
  end if;
  if coalesce(element.delay, make_interval(secs => base_delay)) <= interval '0' then
    perform pgflowd._ring(pgflowd._task_queue(task));
  end if;
end $$;
