-- _report_alone(element, output): records one report; returns the verdict. PF001 when the token
-- holds no live lease, PF002 for an unknown task: then nothing has changed.
-- Called by: complete, fail, release, task_release.
-- Locks: the run, its step state, the task, its attempt, its message.
create or replace function pgflowd._report_alone(element pgflowd.element, output jsonb)
returns text language plpgsql set search_path = '', pg_temp as $$
declare
  answer pgflowd.answer := (pgflowd._report_all(array[element], array[output]))[1];
begin
  if answer.verdict = 'lost' then
    raise exception '%', answer.message using errcode = answer.sqlstate,
      hint = 'the task was claimed, reported or retried since: drop the result';
  end if;
  return answer.verdict;
end $$;
