-- _report_all(reports, outputs): records all elements of a report through the foreign core's
-- functions, in order of run, step and index. It catches no error.
-- Called by: report.   Locks: all runs ascending, then as _report_one.
create or replace function pgflowd._report_all(reports jsonb, outputs text[])
returns setof pgflowd.answer language plpgsql set search_path = ''
set plan_cache_mode = force_generic_plan as $$
declare
  element record;
begin
  perform from pgflow.runs as run
   where run.run_id in (select (report ->> 'run_id')::uuid
                          from jsonb_array_elements(_report_all.reports) as report)
   order by run.run_id for update;
  for element in
    select given.report, given.ord::int as ord, _report_all.outputs[given.ord] as output
      from jsonb_array_elements(_report_all.reports)
           with ordinality as given (report, ord)
     order by (report ->> 'run_id')::uuid, report ->> 'step_slug',
              (report ->> 'task_index')::int, given.ord
  loop
    return next pgflowd._report_element(element.report, element.output, element.ord);
  end loop;
end $$;
