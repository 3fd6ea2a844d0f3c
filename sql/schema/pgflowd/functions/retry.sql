-- retry(run_id, actor, even_if_cancelled, reason): tries a failed run again; returns the number of tasks
-- queued again. Completed work stays. The run and its failed steps are started again (a step that failed
-- by its condition is tested again). Each unfinished task gets a new message and all its attempts. An
-- attempt that is still at work on one of them is revoked: its runner is killed, and only then the task
-- begins anew, or when its lease has lapsed; what a person has begins anew at once. Then the core's
-- pipeline goes on. A run that expired is one that was cancelled; once retried it expires at a time that
-- is still ahead only. One that was paused when it failed is resumed. PF002 for an unknown run; PF004
-- for one that has not failed, that never began, or that was cancelled, unless `even_if_cancelled`;
-- PF005 for one that is, or was, undone, and for the run that undoes it; PF006 for one that had a
-- singleton key which another one has now. What it was before stands in the action: its status, when it
-- ended, and the error. `missing` stands for a column that some cores do not have, as in news.
-- Called by: clients, commands, operators.
-- Locks: the key, the run, its steps (by slug), their unfinished tasks (by slug and index), attempts,
-- messages.
create or replace function pgflowd.retry(
  run_id uuid, actor text, even_if_cancelled boolean default false,
  reason text default null)
returns int language plpgsql security definer set search_path = '', pg_temp as $$
declare
  run pgflow.runs;
  unbegun text;
  before record;
  key constant text := (select known.singleton_key from pgflowd.runs as known
                         where known.run_id = retry.run_id and known.state = 'started');
  holder uuid;
  queued int := 0;
  step record;
begin
  if key is not null then
    perform pgflowd._lock_key(key, true);
  end if;
  select known.* into run from pgflow.runs as known where known.run_id = retry.run_id for no key update;
  if run.run_id is null then
    select known.status into unbegun from pgflowd.run_status as known
     where known.run_id = retry.run_id and known.started_at is null;
    if unbegun is not null then
      raise exception 'run % has never begun: it is %', retry.run_id, unbegun
        using errcode = 'PF004', hint = 'start another one';
    end if;
    raise exception 'there is no run %', retry.run_id using errcode = 'PF002';
  end if;
  if run.status <> 'failed' then
    raise exception 'run % has not failed: it is %', retry.run_id, run.status
      using errcode = 'PF004', hint = 'only a failed run can be retried; see `pgflowd runs show`';
  elsif exists (select from pgflowd.runs as known
                 where known.run_id = retry.run_id and known.undo_state is not null) then
    raise exception 'run % cannot be tried again: it is, or was, undone', retry.run_id
      using errcode = 'PF005', hint = 'start another one';
  elsif exists (select from pgflowd.runs as known
                 where known.run_id = retry.run_id and known.undo_of is not null) then
    raise exception 'run % cannot be tried again: it undoes another one', retry.run_id
      using errcode = 'PF005', hint = '`pgflowd runs undo RUN --again` undoes what is left of that one';
  elsif pgflowd._is_cancelled(retry.run_id) and not retry.even_if_cancelled then
    raise exception 'run % was cancelled', retry.run_id
      using errcode = 'PF004', hint = 'set even_if_cancelled to retry it all the same';
  end if;
  if key is not null then
    holder := pgflowd._key_holder(key);
    if holder <> retry.run_id then
      raise exception 'run % cannot be tried again: run % has its singleton key %', retry.run_id, holder,
        quote_literal(key)
        using errcode = 'PF006', detail = holder, hint = 'retry it when that one has ended';
    end if;
  end if;

  select known.status, known.ended_at, one.error_message into before
    from (values (null::text)) as missing (error_message)
   cross join lateral (
     select known.run_id, error_message from pgflow.runs as known
      where known.run_id = retry.run_id) as one
    join pgflowd.run_status as known on known.run_id = one.run_id;
  perform pgflowd._resume(retry.run_id);
  perform from pgflow.step_states as state where state.run_id = retry.run_id
    order by state.step_slug for no key update;
  perform from pgflow.step_tasks as task
    where task.run_id = retry.run_id and task.status <> 'completed'
    order by task.step_slug, task.task_index for no key update;
  update pgflowd.attempts as attempt set ended_at = now(), outcome = 'lost'
    from pgflow.step_tasks as task
    join pgflow.step_states as state
      on state.run_id = task.run_id and state.step_slug = task.step_slug
   where task.run_id = retry.run_id and task.status <> 'completed'
     and attempt.run_id = task.run_id and attempt.step_slug = task.step_slug
     and attempt.task_index = task.task_index and attempt.ended_at is null
     and (attempt.lease_until < clock_timestamp() or pgflowd._is_person(attempt.worker_id)
          or pgflowd._lease_standing(task.*::pgflow.step_tasks, attempt.*, run.status,
               state.status, pgflowd._is_cancelled(retry.run_id)) <> 'late');
  update pgflowd.runs as known
     set holds_key = key is not null, cancelled_at = null, cancelled_by = null,
         cancel_reason = null, expired_at = null,
         expires_at = case when known.expires_at > now() then known.expires_at end,
         due_at = case when known.expires_at > now() then known.expires_at end
   where known.run_id = retry.run_id;
  update pgflow.runs as known set status = 'started', failed_at = null
   where known.run_id = retry.run_id;
  update pgflow.runs as one set error_message = null where one.run_id = retry.run_id;
  update pgflow.step_states as state
     set status = case when state.started_at is null then 'created' else 'started' end,
         remaining_tasks = case when state.started_at is not null then state.remaining_tasks end,
         failed_at = null, error_message = null
   where state.run_id = retry.run_id and state.status = 'failed';
  for step in select state.step_slug from pgflow.step_states as state
               where state.run_id = retry.run_id and state.status = 'started'
               order by state.step_slug
  loop
    queued := queued + pgflowd._requeue_step(retry.run_id, step.step_slug);
  end loop;
  perform pgflowd._advance(retry.run_id);
  perform pgflowd._record_action(
    'retry', retry.actor, run_id => retry.run_id, reason => retry.reason,
    data => jsonb_strip_nulls(jsonb_build_object(
      'status', before.status, 'ended_at', before.ended_at, 'error', before.error_message)));
  return queued;
end $$;
