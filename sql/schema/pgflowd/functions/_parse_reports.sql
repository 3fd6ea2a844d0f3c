-- _parse_reports(reports): returns the elements of a report as rows; texts are cut to what we keep.
-- Raises for an unknown outcome, for a wait that would never end, and when two elements are about one
-- task.
-- Called by: report, _report_singly.   Locks: nothing.
create or replace function pgflowd._parse_reports(reports jsonb)
returns pgflowd.element[] language plpgsql immutable set search_path = '', pg_temp as $$
declare
  elements pgflowd.element[];
  tasks int;
  unknown text;
  endless text;
begin
  select array_agg((
           given.ord, given.run_id, given.step_slug, given.task_index, given.token, given.outcome,
           left(coalesce(
             nullif(coalesce(given.error_message, given.reason), ''),
             case when given.outcome in ('failed', 'timed_out', 'crashed')
                  then coalesce(nullif(given.error_type, ''), given.outcome) end), 4000),
           left(given.error_type, 200), left(given.traceback, 16000),
           coalesce(given.retry, true), given.delay, given.usage, null, null, null,
           given.wait, null)::pgflowd.element),
         count(distinct (given.run_id, given.step_slug, given.task_index)),
         min(coalesce(given.outcome, 'null')) filter (
           where given.outcome is null or given.outcome not in
                 ('completed', 'failed', 'timed_out', 'crashed', 'released', 'suspended')),
         min(coalesce(given.wait::text, 'null')) filter (
           where given.outcome = 'suspended' and coalesce(case given.wait ->> 'kind'
             when 'sleep' then coalesce(given.wait ->> 'in_s', given.wait ->> 'until') is null
             when 'signal' then given.wait ->> 'name' is null or given.wait ->> 'checkpoint' is null
             when 'need' then pgflowd._joined_needs(given.wait -> 'needs') is null
             when 'runs' then given.wait -> 'runs' -> 0 is null or given.wait ->> 'checkpoint' is null
             end, true))
    into elements, tasks, unknown, endless
    from rows from (jsonb_to_recordset(_parse_reports.reports) as (
           run_id uuid, step_slug text, task_index int, token bigint, outcome text,
           error_message text, reason text, error_type text, traceback text, retry boolean,
           delay interval, usage jsonb, wait jsonb)) with ordinality as given (
           run_id, step_slug, task_index, token, outcome, error_message, reason, error_type,
           traceback, retry, delay, usage, wait, ord);
  if unknown is not null then
    raise exception 'a report cannot have outcome %', unknown using errcode = '22023',
      hint = 'outcomes are completed, failed, timed_out, crashed, released, suspended';
  elsif endless is not null then
    raise exception 'a task cannot wait for %', left(endless, 200) using errcode = '22023',
      hint = 'a wait is of kind sleep, with in_s or until; of kind signal, with name and checkpoint; '
             'of kind runs, with runs and checkpoint; or of kind need, with needs';
  elsif tasks < cardinality(elements) then
    raise exception 'a task is reported twice in one call' using errcode = 'cardinality_violation';
  end if;
  return elements;
end $$;
