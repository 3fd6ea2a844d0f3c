-- _close_attempts(elements, became, outputs): closes the attempts of a report according to what
-- their tasks became, one HOT update for all, and returns an answer for each element. An attempt keeps
-- what its handler has returned unless it has completed its task, for an undo. What history does not
-- keep is deleted instead: completed attempts (`failures`; with traces once they are exported), or all
-- of a task that has ended, except late results and those that an undo may need (`off`). Places of
-- limits that they had are free then.
-- Called by: _report_all.   Locks: attempts, then as _keep_returned; the caller holds the tasks.
create or replace function pgflowd._close_attempts(
  elements pgflowd.element[], became text[], outputs jsonb[])
returns pgflowd.answer[] language plpgsql set search_path = '', pg_temp as $$
declare
  history constant text := coalesce((
    select case when setting.value = '"failures"'
                     and exists (select from pgflowd.traces as cursor
                                  where cursor.seen_at > now() - interval '1 day') then 'all'
                else setting.value #>> '{}' end
      from pgflowd.settings as setting where setting.name = 'history'), 'all');
  answers pgflowd.answer[];
  are_limited boolean;
  any_closed boolean;
begin
  with found as materialized (
    select element.*, judged.verdict,
           case history when 'off' then judged.verdict not in ('completed', 'failed')
                          or judged.verdict = 'failed' and outputs[element.ord] is not null
                             and pgflowd._step_has_undo(element.run_id, element.step_slug)
                        when 'failures' then judged.verdict <> 'completed' or element.outcome <> 'completed'
                        else true end as is_kept
      from unnest(_close_attempts.elements) as element
     cross join lateral (
       select case when element.standing in ('repeated', 'late') then element.standing
                   when element.standing = 'revoked' then 'late'
                   when element.standing <> 'live' then 'lost'
                   when became[element.ord] in ('completed', 'queued', 'failed')
                     then became[element.ord]
                   else 'late' end as verdict) as judged
  ), closed as (
    update pgflowd.attempts as attempt
       set ended_at = pgflowd._moment(),
           outcome = case when found.verdict in ('late', 'lost') or found.outcome = 'completed'
                          then found.verdict else found.outcome end,
           error_type = found.error_type,
           error_message = case when found.outcome = 'completed' and found.verdict = 'failed'
             then (select task.error_message from pgflow.step_tasks as task
                    where task.run_id = attempt.run_id and task.step_slug = attempt.step_slug
                      and task.task_index = attempt.task_index)
             else found.error_message end,
           traceback = found.traceback,
           cpu_s = (found.usage ->> 'cpu_s')::real,
           peak_kb = (found.usage ->> 'peak_kb')::bigint,
           exit_code = (found.usage ->> 'exit_code')::int,
           exit_signal = (found.usage ->> 'exit_signal')::int,
           output = case when found.verdict <> 'completed' then outputs[found.ord] end
      from found
     where found.standing in ('live', 'late', 'lost', 'revoked') and found.is_kept
       and attempt.run_id = found.run_id and attempt.step_slug = found.step_slug
       and attempt.task_index = found.task_index and attempt.token = found.token
  ), deleted as (
    delete from pgflowd.attempts as attempt
     using found
     where history <> 'all'
       and attempt.run_id = found.run_id and attempt.step_slug = found.step_slug
       and attempt.task_index = found.task_index
       and case when attempt.token = found.token then not found.is_kept
                else history = 'off' and found.verdict in ('completed', 'failed', 'late')
                     and found.standing <> 'revoked'
                     and attempt.outcome is distinct from 'late'
                     and (attempt.output is null or found.verdict = 'completed'
                          or not pgflowd._step_has_undo(found.run_id, found.step_slug)) end
  )
  select array_agg((
           found.ord, found.token, found.verdict,
           case when found.verdict <> 'lost' then null
                when found.standing = 'nothing' then 'PF002' else 'PF001' end,
           case when found.outcome = 'failed' and found.wait is not null and found.verdict <> 'lost'
                then found.error_message
                when found.verdict <> 'lost' then null
                when found.standing = 'nothing' then 'there is no '
                  || pgflowd._task_name(found.run_id, found.step_slug, found.task_index)
                else 'token ' || coalesce(found.token::text, 'null') || ' holds no live lease on '
                  || pgflowd._task_name(found.run_id, found.step_slug, found.task_index)
           end, found.run_id, run.status)::pgflowd.answer),
         bool_or(found.is_limited), bool_or(found.standing = 'closed')
    into answers, are_limited, any_closed
    from found
    left join lateral (
      select one.status from pgflow.runs as one
       where one.run_id = found.run_id and found.is_run_open and one.status <> 'started'
      offset 0) as run on true;
  if are_limited then
    perform pgflowd._free_slots(elements);
  end if;
  if any_closed then
    perform pgflowd._keep_returned(elements, outputs);
  end if;
  return answers;
end $$;
