-- fail(task, token, error_message, …): reports an attempt that failed; returns the verdict.
-- `outcome` is one of failed, timed_out, crashed. The task is `queued` again or `failed`; without
-- `retry` it fails for good; `delay` replaces the core's own delay before the next try.
-- PF001 when the token holds no live lease, PF002 for an unknown task.
-- Called by: task_fail; applications.   Locks: see _report_alone.
create or replace function pgflowd.fail(
  run_id uuid, step_slug text, task_index int, token bigint, error_message text,
  error_type text default null, traceback text default null, outcome text default 'failed',
  retry boolean default true, delay interval default null, usage jsonb default null)
returns text language plpgsql set search_path = '', pg_temp as $$
begin
  if fail.outcome is null or fail.outcome not in ('failed', 'timed_out', 'crashed') then
    raise exception 'a failure cannot have outcome %', coalesce(fail.outcome, 'null')
      using errcode = '22023', hint = 'outcomes of failures are failed, timed_out, crashed';
  end if;
  return pgflowd._report_alone(row(
    1, run_id, step_slug, task_index, token, outcome,
    left(coalesce(nullif(error_message, ''), nullif(error_type, ''), outcome), 4000),
    left(error_type, 200), left(traceback, 16000), coalesce(retry, true), delay, usage,
    null, null, null, null, null)::pgflowd.element, null);
end $$;
