-- _report_one(task, token, outcome, …): records one report and returns its verdict:
-- what the task became (`completed`, `queued`, `failed`); `repeated`: this very report was recorded
-- before; `late`: run or step had ended; `lost`, with PF001, or PF002 when there is no such task.
-- An attempt that lost its task is closed as such.
-- Heartbeats move started_at, and a completion in an older transaction would then break
-- completed_at >= started_at; so the attempt's is restored. A task that was queued again and not
-- claimed since is started again. Everything else is the core's.
-- Called by: complete, fail, release, _report_element.
-- Locks: the run, its step state, the task, its attempt, its message, in this order.
create or replace function pgflowd._report_one(
  run_id uuid, step_slug text, task_index int, token bigint, outcome text,
  output jsonb, error_message text, error_type text, traceback text,
  retry boolean, delay interval, usage jsonb,
  out verdict text, out sqlstate text, out message text)
language plpgsql set search_path = ''
set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
  locked record;
  task pgflow.step_tasks;
  attempt pgflowd.attempts;
  cancelled boolean := false;
  standing text := 'unknown';
  became record;
  history text := coalesce((select setting.value #>> '{}' from pgflowd.settings as setting
                             where setting.name = 'history'), 'all');
  error_text text := left(coalesce(
    nullif(_report_one.error_message, ''),
    case when _report_one.outcome in ('failed', 'timed_out', 'crashed')
         then coalesce(nullif(_report_one.error_type, ''), _report_one.outcome) end), 4000);
begin
  if _report_one.outcome is null or _report_one.outcome not in
     ('completed', 'failed', 'timed_out', 'crashed', 'released') then
    raise exception 'a report cannot have outcome %', coalesce(_report_one.outcome, 'null')
      using errcode = '22023',
            hint = 'outcomes are completed, failed, timed_out, crashed, released';
  end if;
  select run.status as run_status, state.status as step_status, known as task into locked
    from pgflow.runs as run
    join pgflow.step_states as state on state.run_id = run.run_id
    join pgflow.step_tasks as known
      on known.run_id = state.run_id and known.step_slug = state.step_slug
   where run.run_id = _report_one.run_id and state.step_slug = _report_one.step_slug
     and known.task_index = _report_one.task_index
     for update of run, state for no key update of known;
  if not found then
    verdict := 'lost';
    sqlstate := 'PF002';
    message := 'there is no ' || pgflowd._task_name(
      _report_one.run_id, _report_one.step_slug, _report_one.task_index);
    return;
  end if;
  task := locked.task;
  select known.* into attempt from pgflowd.attempts as known
   where known.run_id = _report_one.run_id and known.step_slug = _report_one.step_slug
     and known.task_index = _report_one.task_index and known.token = _report_one.token;
  if found then
    if task.status = 'failed' then
      cancelled := exists (select from pgflowd.runs as known
                            where known.run_id = _report_one.run_id
                              and known.cancelled_at is not null);
    end if;
    standing := pgflowd._lease_standing(task, attempt, locked.run_status, locked.step_status,
                                        cancelled);
  end if;

  if standing = 'closed' and pgflowd._is_repeat(attempt, _report_one.outcome) then
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

  if standing = 'live' and (task.status = 'queued' or attempt.started_at > now()
                            or task.started_at is distinct from attempt.started_at) then
    perform pgflowd._hold(task, attempt);
  end if;
  became := pgflowd._become(task, attempt.attempt, standing = 'live', _report_one.outcome,
    _report_one.output, error_text, _report_one.retry, _report_one.delay);
  verdict := case when standing = 'late' or became.status not in ('completed', 'queued', 'failed')
                  then 'late' else became.status end;
  if verdict <> 'completed' or history = 'all' then
    update pgflowd.attempts as known
       set ended_at = now(),
           outcome = case when verdict = 'late' then 'late'
                          when _report_one.outcome = 'completed' then verdict
                          else _report_one.outcome end,
           error_type = left(_report_one.error_type, 200),
           error_message = case when _report_one.outcome = 'completed' and verdict = 'failed'
                                then left(became.error_message, 4000) else error_text end,
           traceback = left(_report_one.traceback, 16000),
           cpu_s = (_report_one.usage ->> 'cpu_s')::real,
           peak_kb = (_report_one.usage ->> 'peak_kb')::bigint,
           exit_code = (_report_one.usage ->> 'exit_code')::int,
           exit_signal = (_report_one.usage ->> 'exit_signal')::int,
           output = case when verdict = 'late' then _report_one.output end
     where known.run_id = _report_one.run_id and known.step_slug = _report_one.step_slug
       and known.task_index = _report_one.task_index and known.token = _report_one.token;
  elsif history = 'failures' then
    delete from pgflowd.attempts as known
     where known.run_id = _report_one.run_id and known.step_slug = _report_one.step_slug
       and known.task_index = _report_one.task_index and known.token = _report_one.token;
  end if;
  if history = 'off' then
    perform pgflowd._delete_attempts(_report_one.run_id, _report_one.step_slug,
                                     _report_one.task_index);
  end if;
end $$;
