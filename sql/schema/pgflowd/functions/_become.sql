-- _become(task, attempt, live, outcome, output, error_text, retry, delay): lets the core do what a
-- report says; returns the task's status afterwards, and its error. A core may return no task.
-- Called by: _report_one.   Locks: messages; see the core. The caller holds run, state and task.
create or replace function pgflowd._become(
  task pgflow.step_tasks, attempt int, live boolean, outcome text, output jsonb,
  error_text text, retry boolean, delay interval, out status text, out error_message text)
language plpgsql set search_path = ''
set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
begin
  if _become.outcome = 'completed' then
    select known.status, known.error_message into status, error_message
      from pgflow.complete_task(task.run_id, task.step_slug, task.task_index,
                                _become.output) as known;
    if found then
      return;
    end if;
  elsif _become.outcome <> 'released' then
    perform pgflowd._fail(task, _become.error_text, coalesce(_become.retry, true), _become.delay,
                          _become.attempt, _become.live);
  elsif _become.live then
    perform pgflowd._put_back(task, _become.attempt, coalesce(_become.delay, interval '0'));
  end if;
  select known.status, known.error_message into status, error_message
    from pgflow.step_tasks as known
   where known.run_id = task.run_id and known.step_slug = task.step_slug
     and known.task_index = task.task_index;
end $$;
