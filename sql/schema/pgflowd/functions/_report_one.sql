-- _report_one(task, token, outcome, …): record one report, tell what became of it.
-- The verdict: what the task became (`completed`, `queued`, `failed`); `repeated`: this very
-- report was recorded before; `late`: run or step had ended; `lost`, with PF001, or PF002 when
-- there is no such task. An attempt that lost its task is closed as such.
-- Beats move started_at, and a completion in an older transaction would then break
-- completed_at >= started_at; so the attempt's is restored. A task put back to the queue and
-- not claimed since is started again. Everything else is the core's.
-- Called by: complete, fail, release, report.   Locks: the run, its step state, the task, its
-- attempt, its message, in this order.
create or replace function pgflowd._report_one(
  run_id uuid, step_slug text, task_index int, token bigint, outcome text,
  output jsonb, error_message text, error_type text, traceback text,
  retry boolean, delay interval, usage jsonb,
  out verdict text, out sqlstate text, out message text)
language plpgsql set search_path = '' set enable_seqscan = off as $$
#variable_conflict use_column
declare
  run_status text;
  step_status text;
  task pgflow.step_tasks;
  attempt pgflowd.attempts;
  standing text;
  error_text text := left(coalesce(
    nullif(_report_one.error_message, ''),
    case when _report_one.outcome in ('failed', 'timed_out', 'crashed')
         then coalesce(nullif(_report_one.error_type, ''), _report_one.outcome) end), 4000);
begin
  if _report_one.outcome is null or _report_one.outcome not in
     ('completed', 'failed', 'timed_out', 'crashed', 'released') then
    raise exception 'a report has no outcome %', coalesce(_report_one.outcome, 'null')
      using errcode = '22023';
  end if;
  select run.status into run_status from pgflow.runs as run
   where run.run_id = _report_one.run_id for update;
  select state.status into step_status from pgflow.step_states as state
   where state.run_id = _report_one.run_id and state.step_slug = _report_one.step_slug for update;
  select known.* into task from pgflow.step_tasks as known
   where known.run_id = _report_one.run_id and known.step_slug = _report_one.step_slug
     and known.task_index = _report_one.task_index for no key update;
  if task.run_id is null then
    verdict := 'lost';
    sqlstate := 'PF002';
    message := 'there is no ' || pgflowd._task_name(
      _report_one.run_id, _report_one.step_slug, _report_one.task_index);
    return;
  end if;
  select known.* into attempt from pgflowd.attempts as known
   where known.run_id = _report_one.run_id and known.step_slug = _report_one.step_slug
     and known.task_index = _report_one.task_index and known.token = _report_one.token;
  standing := case when attempt.run_id is null then 'unknown'
                   else pgflowd._judge(task, attempt, run_status, step_status, exists (
                     select from pgflowd.runs as cancelled
                      where cancelled.run_id = _report_one.run_id
                        and cancelled.cancelled_at is not null)) end;

  if standing = 'closed' and pgflowd._repeats(attempt, _report_one.outcome) then
    verdict := 'repeated';
    return;
  elsif standing in ('unknown', 'closed', 'lost') then
    if standing = 'lost' then
      update pgflowd.attempts as known set ended_at = now(), outcome = 'lost'
       where known.run_id = _report_one.run_id and known.step_slug = _report_one.step_slug
         and known.task_index = _report_one.task_index and known.token = _report_one.token;
    end if;
    verdict := 'lost';
    sqlstate := 'PF001';
    message := 'token ' || coalesce(_report_one.token::text, 'null') || ' holds no live lease on '
      || pgflowd._task_name(_report_one.run_id, _report_one.step_slug, _report_one.task_index);
    return;
  end if;

  if standing = 'live' then
    perform pgflowd._hold(task, attempt);
  end if;
  if _report_one.outcome = 'completed' then
    perform pgflow.complete_task(_report_one.run_id, _report_one.step_slug,
                                 _report_one.task_index, _report_one.output);
  elsif _report_one.outcome = 'released' then
    if standing = 'live' then
      perform pgflowd._put_back(task, attempt.attempt, coalesce(_report_one.delay, interval '0'));
    end if;
  else
    perform pgflowd._fail(task, error_text, coalesce(_report_one.retry, true), _report_one.delay,
                          attempt.attempt, standing = 'live');
  end if;

  select known.* into task from pgflow.step_tasks as known
   where known.run_id = _report_one.run_id and known.step_slug = _report_one.step_slug
     and known.task_index = _report_one.task_index;
  verdict := case when standing = 'late' or task.status not in ('completed', 'queued', 'failed')
                  then 'late' else task.status end;
  update pgflowd.attempts as known
     set ended_at = now(),
         outcome = case when verdict = 'late' then 'late'
                        when _report_one.outcome = 'completed' then verdict
                        else _report_one.outcome end,
         error_type = left(_report_one.error_type, 200),
         error_message = case when _report_one.outcome = 'completed' and verdict = 'failed'
                              then left(task.error_message, 4000) else error_text end,
         traceback = left(_report_one.traceback, 16000),
         cpu_s = (_report_one.usage ->> 'cpu_s')::real,
         peak_kb = (_report_one.usage ->> 'peak_kb')::bigint,
         exit_code = (_report_one.usage ->> 'exit_code')::int,
         exit_signal = (_report_one.usage ->> 'exit_signal')::int,
         output = case when verdict = 'late' then _report_one.output end
   where known.run_id = _report_one.run_id and known.step_slug = _report_one.step_slug
     and known.task_index = _report_one.task_index and known.token = _report_one.token;
  if verdict = 'completed' and pgflowd.setting('history') = '"failures"' then
    delete from pgflowd.attempts as known
     where known.run_id = _report_one.run_id and known.step_slug = _report_one.step_slug
       and known.task_index = _report_one.task_index and known.token = _report_one.token;
  end if;
  perform pgflowd._forget(_report_one.run_id, _report_one.step_slug, _report_one.task_index);
end $$;
