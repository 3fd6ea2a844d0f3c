-- element: one element of a report: what the worker reports, and what _with_standings adds:
-- `standing`; `is_moved`, whether its task no longer looks as its attempt left it; and
-- `is_run_open`, whether its run had not ended before. `ord` is its place in the report, from 1;
-- `wait` what a suspended task waits for, or how long a handler may ask for releases; `is_limited`, whether its attempt has a place of a limit.
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
      is_moved boolean,
      is_run_open boolean,
      wait jsonb,
      is_limited boolean
    );
  end if;
end $$;
