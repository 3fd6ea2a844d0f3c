-- _cancel(run_id, reason, actor): ends a run now, as failed; returns as cancel does. What calls it by
-- itself names `pgflowd` as the actor: that is not what a person did, and leaves no action. A planned
-- run never begins. Of another one its started steps fail, its open tasks too (they are `cancelled`
-- where the core has that status), with the text `cancelled by ACTOR: REASON`; their messages are
-- archived, events are sent, and the workers are woken to send a heartbeat at once. Open attempts stay:
-- what they report is kept as late. Its spans are exported, where there are traces. The sweep cancels
-- its children. PF002 for an unknown run, PF003 for
-- one that has ended. `missing` stands for a column that some cores do not have, as in news.
-- Called by: cancel, _cancel_children, _process_runs, _replace_in_line.
-- Locks: the run, or what is planned of it (_cancel_planned); its started steps (by slug), their open
-- tasks (by slug and index), messages.
create or replace function pgflowd._cancel(run_id uuid, reason text, actor text)
returns text language plpgsql set search_path = '', pg_temp as $$
declare
  run pgflow.runs;
  answer text;
  why text := left(concat(
    'cancelled by ', coalesce(nullif(_cancel.actor, ''), 'an unknown user'),
    ': ' || nullif(_cancel.reason, '')), 4000);
begin
  select known.* into run from pgflow.runs as known where known.run_id = _cancel.run_id for no key update;
  if run.run_id is null then
    answer := pgflowd._cancel_planned(_cancel.run_id, _cancel.reason, _cancel.actor);
    if answer is not null then
      return answer;
    end if;
    select known.* into run from pgflow.runs as known where known.run_id = _cancel.run_id for no key update;
  end if;
  if run.run_id is null then
    raise exception 'there is no run %', _cancel.run_id using errcode = 'PF002';
  elsif pgflowd._is_cancelled(_cancel.run_id) then
    return 'repeated';
  elsif run.status <> 'started' then
    raise exception 'run % has ended already: it is %', _cancel.run_id,
      coalesce((select replace(known.undo_state, 'wanted', 'undoing') from pgflowd.runs as known
                 where known.run_id = _cancel.run_id), run.status)
      using errcode = 'PF003';
  end if;

  insert into pgflowd.runs as known (run_id, flow_slug, cancelled_at, cancelled_by, cancel_reason)
  values (_cancel.run_id, run.flow_slug, now(), _cancel.actor, _cancel.reason)
  on conflict on constraint runs_pkey do update
     set cancelled_at = excluded.cancelled_at, cancelled_by = excluded.cancelled_by,
         cancel_reason = excluded.cancel_reason;
  perform from pgflow.step_states as state
    where state.run_id = _cancel.run_id and state.status = 'started'
    order by state.step_slug for no key update;
  perform from pgflow.step_tasks as task
    where task.run_id = _cancel.run_id and task.status in ('queued', 'started')
    order by task.step_slug, task.task_index for no key update;
  perform pgflowd._cancel_tasks(_cancel.run_id, why);
  perform pgflowd._cancel_steps(_cancel.run_id, why);
  update pgflow.runs as known
     set status = 'failed', failed_at = greatest(now(), known.started_at)
   where known.run_id = _cancel.run_id;
  if (select one.is_watched
        from (values (false)) as missing (is_watched)
       cross join lateral (
         select is_watched from pgflow.runs as known where known.run_id = _cancel.run_id) as one) then
    perform pgflowd._mark_ended(array[_cancel.run_id]);
  end if;
  update pgflow.runs as one set error_message = why where one.run_id = _cancel.run_id;
  perform pgflowd._send_event(_cancel.run_id, 'run:failed', jsonb_build_object(
    'event_type', 'run:failed', 'run_id', _cancel.run_id, 'flow_slug', run.flow_slug,
    'status', 'failed', 'error_message', why,
    'failed_at', greatest(now(), run.started_at)));
  perform pgflowd._mark_parent(_cancel.run_id);
  perform pgflowd._mark_failed(_cancel.run_id, true);
  perform pgflowd._note_end(_cancel.run_id);
  return 'cancelled';
end $$;
