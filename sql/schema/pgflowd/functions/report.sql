-- report(reports, outputs): records up to 200 finished tasks of any runs in one call; returns
-- token, verdict, sqlstate, message, run_status for each, in the order given.
-- An element is an object with run_id, step_slug, task_index, token, outcome (completed, failed,
-- timed_out, crashed, released, suspended), and as the outcome needs: error_message, error_type,
-- traceback, retry, delay, usage, reason, wait. Its output, a JSON text, stands at its place in
-- `outputs`. A wait is {"kind": "sleep", "in_s" or "until"}, {"kind": "signal", "name",
-- "checkpoint"}, {"kind": "runs", "runs": their ids, "checkpoint"}, or {"kind": "need", "needs"}; each may
-- have "why", and the first three all of "checkpoint", "in_s" or "until".
-- A release of error_type RetryAfter with the wait {"at_most_s": N} was asked for by the handler; if such
-- releases in a row would go on for longer, the attempt has failed, and `message` says so.
-- Verdicts are those of single reports, and `lost`, and `error` with an SQLSTATE: one such
-- element does not spoil the others. A run not free within 5 s, or within a quarter of a short
-- `statement_timeout`, gives `error` 55P03.
-- `run_status` is the status (completed, failed) in which this call ended the element's run: each
-- element of that run has it, except one with `error`. It is null while the run is started, and
-- when the run had ended before.
-- First all elements are recorded at once; if anything raises, that is undone and each element is
-- recorded by itself. 40001, 40P01 and 57014 are raised: send the report again.
-- Called by: workers.
-- Locks: runs in ascending order, all before anything else; then step states, tasks, attempts,
-- messages, waits.
create or replace function pgflowd.report(reports jsonb, outputs text[])
returns table (token bigint, verdict text, sqlstate text, message text, run_status text)
language plpgsql set search_path = '', pg_temp set lock_timeout = '5s' as $$
#variable_conflict use_column
declare
  parsed jsonb[];
  answers pgflowd.answer[];
  patience interval := interval '5 s';
  patient_until timestamptz;
  statement_limit interval := current_setting('statement_timeout')::interval;
begin
  -- a run is waited for twice; before 57014, which nobody can catch and which looks like a report
  -- that takes too long
  if statement_limit > interval '0' and statement_limit < 4 * patience then
    patience := statement_limit / 4;
    perform set_config('lock_timeout', ceil(extract(epoch from patience) * 1000)::text, true);
  end if;
  patient_until := clock_timestamp() + patience;
  if jsonb_array_length(report.reports) > 200
     or jsonb_array_length(report.reports)
        <> coalesce(cardinality(report.outputs), -1) then
    raise exception 'a report takes up to 200 elements and as many outputs, not % and %',
      jsonb_array_length(report.reports),
      coalesce(cardinality(report.outputs)::text, 'null') using errcode = '22023';
  end if;
  if jsonb_array_length(report.reports) = 0 then
    return;
  end if;
  begin
    parsed := report.outputs::jsonb[];  -- a statement of its own, which frees what it took
    answers := pgflowd._report_all(pgflowd._parse_reports(report.reports), parsed);
  exception when others then
    if sqlstate in ('40001', '40P01') then
      raise;
    end if;
    answers := pgflowd._report_singly(report.reports, report.outputs, patient_until);
  end;
  return query
    select answer.token, answer.verdict, answer.sqlstate, answer.message,
           max(answer.run_status) over (partition by answer.run_id)
      from unnest(answers) as answer order by answer.ord;
end $$;
