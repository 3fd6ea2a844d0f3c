-- task_fail(run_id, step_slug, task_index, reason, final, actor, token): a person fails a task; returns the
-- verdict, as fail does: an attempt is spent, and with `final` there is no other one. The token is as in
-- task_complete, and so are the errors.
-- Called by: `pgflowd tasks fail`, applications.   Locks: see _hold_task and _report_alone.
create or replace function pgflowd.task_fail(
  run_id uuid, step_slug text, task_index int, reason text, final boolean, actor text,
  token bigint default null)
returns text language plpgsql security definer set search_path = '', pg_temp as $$
declare
  verdict text;
begin
  verdict := pgflowd.fail(
    task_fail.run_id, task_fail.step_slug, task_fail.task_index,
    coalesce(task_fail.token, pgflowd._hold_task(
      task_fail.run_id, task_fail.step_slug, task_fail.task_index, task_fail.actor)),
    concat('failed by ', coalesce(nullif(task_fail.actor, ''), session_user),
           ': ' || nullif(task_fail.reason, '')),
    retry => not coalesce(task_fail.final, false));
  perform pgflowd._record_report('task_fail', verdict, task_fail.actor, task_fail.run_id,
                                 task_fail.step_slug, task_fail.task_index, task_fail.reason);
  return verdict;
end $$;
