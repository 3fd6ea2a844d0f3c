-- _judged(elements): the same, with what each may do. The caller holds the locks of all runs
-- and tasks, taken in statements before this one: so it sees attempts as they are.
-- Standings are those of _judge, and `nothing` (no such task), `unknown` (no such token),
-- `repeated` (this report was recorded before).
-- Called by: _report_all.   Locks: nothing.
create or replace function pgflowd._judged(elements pgflowd.element[])
returns pgflowd.element[] language plpgsql set search_path = ''
set plan_cache_mode = force_generic_plan as $$
begin
  return (
    select array_agg((
             element.ord, element.run_id, element.step_slug, element.task_index, element.token,
             element.outcome, element.error_message, element.error_type, element.traceback,
             element.retry, element.delay, element.usage, found.standing,
             found.standing = 'live' and (task.status = 'queued' or attempt.started_at > now()
               or task.started_at is distinct from attempt.started_at))::pgflowd.element
             order by element.ord)
      from unnest(_judged.elements) as element
      left join pgflow.step_tasks as task
        on task.run_id = element.run_id and task.step_slug = element.step_slug
       and task.task_index = element.task_index
      left join pgflow.runs as run on run.run_id = element.run_id
      left join pgflow.step_states as state
        on state.run_id = element.run_id and state.step_slug = element.step_slug
      left join pgflowd.attempts as attempt
        on attempt.run_id = element.run_id and attempt.step_slug = element.step_slug
       and attempt.task_index = element.task_index and attempt.token = element.token
     cross join lateral (
       select case when task.run_id is null then 'nothing'
                   when attempt.run_id is null then 'unknown'
                   when attempt.ended_at is not null
                        and pgflowd._repeats(attempt.*, element.outcome) then 'repeated'
                   else pgflowd._judge(task, attempt.*, run.status, state.status)
              end as standing) as found);
end $$;
