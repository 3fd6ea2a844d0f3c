-- task_wake(run_id, step_slug, task_index, actor, reason): ends the wait of a task now; returns
-- `queued`. What it waited for counts as over: a sleep is slept, a signal or the end of runs did not
-- come in time. Who woke it and why stands in the checkpoint that the task finds. PF002 for an unknown
-- task, PF008 for one that does not wait.
-- Called by: commands; operators.   Locks: the run, the task; see _free.
create or replace function pgflowd.task_wake(
  run_id uuid, step_slug text, task_index int, actor text, reason text)
returns text language plpgsql security definer set search_path = '', pg_temp as $$
declare
  task_name constant text := pgflowd._task_name(
    task_wake.run_id, task_wake.step_slug, task_wake.task_index);
  status text;
  waited record;
begin
  perform from pgflow.runs as run where run.run_id = task_wake.run_id for no key update;
  select task.status into status from pgflow.step_tasks as task
   where task.run_id = task_wake.run_id and task.step_slug = task_wake.step_slug
     and task.task_index = task_wake.task_index for no key update;
  if not found then
    raise exception 'there is no %', task_name using errcode = 'PF002';
  end if;
  select wait.kind, wait.name, wait.due_at into waited from pgflowd.waits as wait
   where wait.run_id = task_wake.run_id and wait.step_slug = task_wake.step_slug
     and wait.task_index = task_wake.task_index;
  if not found then
    raise exception '% does not wait: it is %', task_name, status using errcode = 'PF008',
      hint = 'only a task that waits can be woken';
  end if;
  perform pgflowd._end_waits(
    array[task_wake.run_id], array[task_wake.step_slug], array[task_wake.task_index],
    jsonb_strip_nulls(jsonb_build_object('by', task_wake.actor, 'reason', task_wake.reason)));
  perform pgflowd._record_action(
    'task_wake', task_wake.actor, run_id => task_wake.run_id, step_slug => task_wake.step_slug,
    task_index => task_wake.task_index, reason => task_wake.reason,
    data => jsonb_strip_nulls(jsonb_build_object(
      'kind', waited.kind, 'name', waited.name, 'due_at', waited.due_at)));
  return 'queued';
end $$;
