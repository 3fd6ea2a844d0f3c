-- cancel(run_id, reason, actor): ends a run now, as failed; returns `cancelled`, or `repeated`
-- when it was cancelled before. A planned run never begins. Of another one its started steps fail, its open tasks too (they are `cancelled`
-- where the core has that status), with the text `cancelled by ACTOR: REASON`; their messages are
-- archived, events are sent, and the workers are woken to send a heartbeat at once. Open attempts
-- stay: what they report is kept as late. The sweep cancels its children. PF002 for an unknown run, PF003 for one that has ended.
-- Security definer, so that a role which may touch no table can cancel what it started; whoever has no
-- role of roles.sql needs a grant. `missing` stands for a column that some cores do not have, as in news.
-- Called by: _cancel_children, _process_runs, _replace_in_line; clients, commands, operators.
-- Locks: the run, or what is planned of it (_cancel_planned); its started steps (by slug), their open tasks (by slug and index), messages.
create or replace function pgflowd.cancel(run_id uuid, reason text, actor text)
returns text language plpgsql security definer set search_path = '', pg_temp as $$
declare
  run pgflow.runs;
  answer text;
  error_message text := left(concat(
    'cancelled by ', coalesce(nullif(cancel.actor, ''), 'an unknown user'),
    ': ' || nullif(cancel.reason, '')), 4000);
begin
  select known.* into run from pgflow.runs as known where known.run_id = cancel.run_id for no key update;
  if run.run_id is null then
    answer := pgflowd._cancel_planned(cancel.run_id, cancel.reason, cancel.actor);
    if answer is not null then
      return answer;
    end if;
    select known.* into run from pgflow.runs as known where known.run_id = cancel.run_id for no key update;
  end if;
  if run.run_id is null then
    raise exception 'there is no run %', cancel.run_id using errcode = 'PF002';
  elsif pgflowd._is_cancelled(cancel.run_id) then
    return 'repeated';
  elsif run.status <> 'started' then
    raise exception 'run % has ended already: it is %', cancel.run_id, run.status
      using errcode = 'PF003';
  end if;

  insert into pgflowd.runs as known (run_id, flow_slug, cancelled_at, cancelled_by, cancel_reason)
  values (cancel.run_id, run.flow_slug, now(), cancel.actor, cancel.reason)
  on conflict on constraint runs_pkey do update
     set cancelled_at = excluded.cancelled_at, cancelled_by = excluded.cancelled_by,
         cancel_reason = excluded.cancel_reason;
  perform from pgflow.step_states as state
    where state.run_id = cancel.run_id and state.status = 'started'
    order by state.step_slug for no key update;
  perform from pgflow.step_tasks as task
    where task.run_id = cancel.run_id and task.status in ('queued', 'started')
    order by task.step_slug, task.task_index for no key update;
  perform pgflowd._cancel_tasks(cancel.run_id, error_message);
  perform pgflowd._cancel_steps(cancel.run_id, error_message);
  update pgflow.runs as known
     set status = 'failed', failed_at = greatest(now(), known.started_at)
   where known.run_id = cancel.run_id;
  if (select one.is_watched
        from (values (false)) as missing (is_watched)
       cross join lateral (
         select is_watched from pgflow.runs as known where known.run_id = cancel.run_id) as one) then
    perform pgflowd._mark_ended(array[cancel.run_id]);
  end if;
  perform pgflowd._set_run_error(cancel.run_id, error_message);
  perform pgflowd._send_event(cancel.run_id, 'run:failed', jsonb_build_object(
    'event_type', 'run:failed', 'run_id', cancel.run_id, 'flow_slug', run.flow_slug,
    'status', 'failed', 'error_message', error_message,
    'failed_at', greatest(now(), run.started_at)));
  perform pgflowd._mark_parent(cancel.run_id);
  return 'cancelled';
end $$;
revoke execute on function pgflowd.cancel(uuid, text, text) from public;
