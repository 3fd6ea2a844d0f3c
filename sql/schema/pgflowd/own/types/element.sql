-- element: one element of a report, on its way through _report_all: what the worker reports, and
-- what was found: `standing` (see _lease_standing), and whether the task must be restored (`hold`).
do $$
begin
  if to_regtype('pgflowd.element') is null then
    create type pgflowd.element as (
      ord int,
      run_id uuid,
      step_slug text,
      task_index int,
      token bigint,
      outcome text,
      error_message text,
      error_type text,
      traceback text,
      retry boolean,
      delay interval,
      usage jsonb,
      standing text,
      hold boolean
    );
  end if;
end $$;
