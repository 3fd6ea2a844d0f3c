-- complete(task, token, output, usage): reports a task completed; returns the verdict.
-- `completed`, `failed` (the output breaks a type), `late`, `repeated`. PF001 when the token
-- holds no live lease, PF002 for an unknown task: then nothing has changed.
-- Called by: task_complete; applications.   Locks: see _report_alone.
create or replace function pgflowd.complete(
  run_id uuid, step_slug text, task_index int, token bigint, output jsonb,
  usage jsonb default null)
returns text language plpgsql set search_path = '', pg_temp as $$
begin
  return pgflowd._report_alone(row(
    1, run_id, step_slug, task_index, token, 'completed', null, null, null, null, null, usage,
    null, null, null, null, null)::pgflowd.element, output);
end $$;
