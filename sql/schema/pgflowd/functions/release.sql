-- release(task, token, delay, reason): gives a task back unspent; returns the verdict, `queued`.
-- Its attempt does not count, and after `delay` any worker may claim it.
-- PF001 when the token holds no live lease, PF002 for an unknown task.
-- Called by: applications.   Locks: see _report_one.
create or replace function pgflowd.release(
  run_id uuid, step_slug text, task_index int, token bigint,
  delay interval default '0', reason text default null)
returns text language plpgsql set search_path = '' as $$
declare
  report record;
begin
  report := pgflowd._report_one(
    release.run_id, release.step_slug, release.task_index, release.token, 'released',
    null, release.reason, null, null, null, release.delay, null);
  if report.verdict = 'lost' then
    raise exception '%', report.message using errcode = report.sqlstate,
      hint = 'the task was claimed, reported or retried since: drop the result';
  end if;
  return report.verdict;
end $$;
