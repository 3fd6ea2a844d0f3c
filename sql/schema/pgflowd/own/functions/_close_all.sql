-- _close_all(elements, became, outputs): close the attempts of a report with what their tasks
-- became, one HOT update for all, and answer for each element. What history does not keep is
-- deleted: completed attempts (`failures`), or all of a task that has ended (`off`).
-- Called by: _report_all.   Locks: attempts; the caller holds the tasks.
create or replace function pgflowd._close_all(
  elements pgflowd.element[], became pgflowd.answer[], outputs jsonb[])
returns setof pgflowd.answer language plpgsql set search_path = ''
set plan_cache_mode = force_generic_plan as $$
declare
  history text := pgflowd.setting('history') #>> '{}';
  answers pgflowd.answer[];
begin
  select array_agg((
           element.ord, element.token, found.verdict,
           case when found.verdict <> 'lost' then null
                when element.standing = 'nothing' then 'PF002' else 'PF001' end,
           case when found.verdict <> 'lost' then null
                when element.standing = 'nothing' then 'there is no ' || found.name
                else concat('token ', element.token, ' holds no live lease on ', found.name)
           end)::pgflowd.answer order by element.ord)
    into answers
    from unnest(_close_all.elements) as element
    left join unnest(_close_all.became) as task on task.ord = element.ord
   cross join lateral (
     select case when element.standing = 'repeated' then 'repeated'
                 when element.standing = 'late' then 'late'
                 when element.standing <> 'live' then 'lost'
                 when task.verdict in ('completed', 'queued', 'failed') then task.verdict
                 else 'late' end as verdict,
            pgflowd._task_name(element.run_id, element.step_slug, element.task_index) as name)
     as found;

  update pgflowd.attempts as attempt
     set ended_at = now(),
         outcome = case when answer.verdict in ('late', 'lost') then answer.verdict
                        when element.outcome = 'completed' then answer.verdict
                        else element.outcome end,
         error_type = element.error_type,
         error_message = case when element.outcome = 'completed' and answer.verdict = 'failed'
           then (select task.error_message from pgflow.step_tasks as task
                  where task.run_id = attempt.run_id and task.step_slug = attempt.step_slug
                    and task.task_index = attempt.task_index)
           else element.error_message end,
         traceback = element.traceback,
         cpu_s = (element.usage ->> 'cpu_s')::real,
         peak_kb = (element.usage ->> 'peak_kb')::bigint,
         exit_code = (element.usage ->> 'exit_code')::int,
         exit_signal = (element.usage ->> 'exit_signal')::int,
         output = case when answer.verdict = 'late' then _close_all.outputs[element.ord] end
    from unnest(_close_all.elements) as element
    join unnest(answers) as answer on answer.ord = element.ord
   where element.standing in ('live', 'late', 'lost')
     and (history = 'all' or answer.verdict <> 'completed')
     and attempt.run_id = element.run_id and attempt.step_slug = element.step_slug
     and attempt.task_index = element.task_index and attempt.token = element.token;
  if history <> 'all' then
    delete from pgflowd.attempts as attempt
     using unnest(_close_all.elements) as element
      join unnest(answers) as answer on answer.ord = element.ord
     where attempt.run_id = element.run_id and attempt.step_slug = element.step_slug
       and attempt.task_index = element.task_index
       and case when history = 'off' then answer.verdict in ('completed', 'failed', 'late')
                                          and attempt.outcome is distinct from 'late'
                else answer.verdict = 'completed' and attempt.token = element.token end;
  end if;
  return query select * from unnest(answers);
end $$;
