-- task_release(run_id, step_slug, task_index, delay, actor, token): a person gives a task back; returns the
-- verdict, `queued`. No attempt is spent, and after `delay` anybody may claim it. The token is as in
-- task_complete, and so are the errors: a task that nobody has is delayed.
-- Called by: `pgflowd tasks release`, applications.   Locks: see _hold_task and _report_alone.
create or replace function pgflowd.task_release(
  run_id uuid, step_slug text, task_index int, delay interval, actor text,
  token bigint default null)
returns text language plpgsql set search_path = '' as $$
begin
  return pgflowd.release(
    task_release.run_id, task_release.step_slug, task_release.task_index,
    coalesce(task_release.token, pgflowd._hold_task(
      task_release.run_id, task_release.step_slug, task_release.task_index, task_release.actor)),
    coalesce(task_release.delay, interval '0'),
    'released by ' || coalesce(nullif(task_release.actor, ''), session_user));
end $$;
