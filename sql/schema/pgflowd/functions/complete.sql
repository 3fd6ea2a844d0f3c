-- complete(task, token, output, usage): reports a task completed; returns the verdict.
-- `completed`, `failed` (the output breaks a type), `late`, `repeated`. PF001 when the token
-- holds no live lease, PF002 for an unknown task: then nothing has changed.
-- Called by: applications.   Locks: see _report_one.
create or replace function pgflowd.complete(
  run_id uuid, step_slug text, task_index int, token bigint, output jsonb,
  usage jsonb default null)
returns text language plpgsql set search_path = '' as $$
declare
  report record;
begin
  report := pgflowd._report_one(
    complete.run_id, complete.step_slug, complete.task_index, complete.token, 'completed',
    complete.output, null, null, null, null, null, complete.usage);
  if report.verdict = 'lost' then
    raise exception '%', report.message using errcode = report.sqlstate,
      hint = 'the task was claimed, reported or retried since: drop the result';
  end if;
  return report.verdict;
end $$;
