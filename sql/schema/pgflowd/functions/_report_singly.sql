-- _report_singly(reports, outputs, patient_until): the same as _report_all, each element in a
-- subtransaction of its own, so that the one that raises is found and the others are recorded.
-- Here too all runs are locked first: pgmq's insert trigger takes the throttle row of a queue,
-- and a transaction that holds it and waits for a run could deadlock. After `patient_until` it
-- no longer waits.
-- Called by: report.   Locks: as report.
create or replace function pgflowd._report_singly(
  reports jsonb, outputs text[], patient_until timestamptz)
returns pgflowd.answer[] language plpgsql set search_path = '', pg_temp as $$
declare
  patience text := current_setting('lock_timeout');
  busy text[] := '{}';
  run record;
  element record;
  answer pgflowd.answer;
  answers pgflowd.answer[];
begin
  for run in
    select distinct lower((report ->> 'run_id') collate "C") as id
      from jsonb_array_elements(_report_singly.reports) as report order by 1
  loop
    begin
      perform set_config('lock_timeout', greatest(1, ceil(extract(
        epoch from _report_singly.patient_until - clock_timestamp()) * 1000))::text, true);
      perform from pgflow.runs as known where known.run_id = run.id::uuid for no key update;
    exception
      when lock_not_available then busy := busy || run.id;
      when invalid_text_representation then null;  -- its elements raise it again
    end;
  end loop;
  perform set_config('lock_timeout', patience, true);

  for element in
    select given.report, given.ord::int as ord, _report_singly.outputs[given.ord] as output
      from jsonb_array_elements(_report_singly.reports)
           with ordinality as given (report, ord)
     order by lower((report ->> 'run_id') collate "C"), report ->> 'step_slug',
              (report -> 'task_index'), given.ord
  loop
    begin
      if lower((element.report ->> 'run_id') collate "C") = any(busy) then
        raise exception 'run % is locked by another transaction', element.report ->> 'run_id'
          using errcode = 'lock_not_available';
      end if;
      answer := (pgflowd._report_all(pgflowd._parse_reports(jsonb_build_array(element.report)),
                                     array[element.output::jsonb]))[1];
      answer.ord := element.ord;
    exception when others then
      if sqlstate in ('40001', '40P01') then
        raise;
      end if;
      answer := (element.ord, null, 'error', sqlstate, sqlerrm, null, null);
      if element.report ->> 'token' ~ '^\d{1,18}$' then
        answer.token := element.report ->> 'token';
      end if;
    end;
    answers := answers || answer;
  end loop;
  return answers;
end $$;
