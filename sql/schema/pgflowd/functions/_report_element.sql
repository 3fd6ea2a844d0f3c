-- _report_element(report, output, ord): records one element of a report.
-- Called by: _report_all, _report_singly.   Locks: see _report_one.
create or replace function pgflowd._report_element(report jsonb, output text, ord int)
returns pgflowd.answer language plpgsql set search_path = ''
set plan_cache_mode = force_generic_plan as $$
declare
  one record;
begin
  one := pgflowd._report_one(
    (report ->> 'run_id')::uuid, report ->> 'step_slug', (report ->> 'task_index')::int,
    pgflowd._token(report), report ->> 'outcome', _report_element.output::jsonb,
    coalesce(report ->> 'error_message', report ->> 'reason'), report ->> 'error_type',
    report ->> 'traceback', (report ->> 'retry')::boolean, (report ->> 'delay')::interval,
    report -> 'usage');
  return (_report_element.ord, pgflowd._token(report), one.verdict, one.sqlstate, one.message);
end $$;
