-- task_complete(run_id, step_slug, task_index, output, actor, token): a person completes a task; returns
-- the verdict, as complete does. Without a token it is the task that the person has claimed, or one that
-- is queued or waits, which is taken at this moment (_hold_task). PF008 for a task that somebody else
-- has, PF001 for a token that holds no live lease, PF002 for an unknown task.
-- Called by: `pgflowd tasks complete`, applications.   Locks: see _hold_task and _report_alone.
create or replace function pgflowd.task_complete(
  run_id uuid, step_slug text, task_index int, output jsonb, actor text,
  token bigint default null)
returns text language plpgsql security definer set search_path = '', pg_temp as $$
declare
  verdict text;
begin
  verdict := pgflowd.complete(
    task_complete.run_id, task_complete.step_slug, task_complete.task_index,
    coalesce(task_complete.token, pgflowd._hold_task(
      task_complete.run_id, task_complete.step_slug, task_complete.task_index,
      task_complete.actor)),
    task_complete.output);
  perform pgflowd._record_report('task_complete', verdict, task_complete.actor, task_complete.run_id,
                                 task_complete.step_slug, task_complete.task_index);
  return verdict;
end $$;
