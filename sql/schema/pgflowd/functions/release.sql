-- release(task, token, delay, reason): gives a task back unspent; returns the verdict, `queued`.
-- Its attempt does not count, and after `delay` any worker may claim it.
-- PF001 when the token holds no live lease, PF002 for an unknown task.
-- Called by: task_release; applications.   Locks: see _report_alone.
create or replace function pgflowd.release(
  run_id uuid, step_slug text, task_index int, token bigint,
  delay interval default '0', reason text default null)
returns text language plpgsql set search_path = '', pg_temp as $$
begin
  return pgflowd._report_alone(row(
    1, run_id, step_slug, task_index, token, 'released', left(nullif(reason, ''), 4000), null,
    null, null, delay, null, null, null, null, null, null)::pgflowd.element, null);
end $$;
