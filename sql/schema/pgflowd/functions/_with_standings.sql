-- _with_standings(elements): returns the elements with their standings. The caller holds the
-- locks of all runs and tasks, taken in statements before this one: so it sees attempts as they
-- are. Standings are those of _lease_standing, and `nothing` (no such task), `unknown` (no such
-- token), `repeated` (this report was recorded before). Whatever a revoked attempt reports, its
-- task is released. One that its handler wants unspent has failed if that goes on for too long.
-- Called by: _report_all.   Locks: nothing.
create or replace function pgflowd._with_standings(elements pgflowd.element[])
returns pgflowd.element[] language plpgsql set search_path = '', pg_temp as $$
begin
  return (
    select array_agg((
             found.ord, found.run_id, found.step_slug, found.task_index, found.token,
             case when found.standing = 'revoked' then 'released'
                  when asked.is_over then 'failed' else found.outcome end,
             case when asked.is_over then left(found.error_message, 3800) || format(
                    '; it would end more than %s s (at_most) after the first such attempt, so this one is spent',
                    trim_scale((found.wait ->> 'at_most_s')::numeric))
                  else found.error_message end, found.error_type, found.traceback,
             found.retry, found.delay, found.usage, found.standing,
             found.standing = 'live' and found.is_moved, found.is_run_open, found.wait,
             found.is_limited)::pgflowd.element)
      from (select element.ord, element.run_id, element.step_slug, element.task_index,
                   element.token, element.outcome, element.error_message, element.error_type,
                   element.traceback, element.retry, element.delay, element.usage,
                   element.wait,
                   attempt.limit_key is not null as is_limited,
                   run.status = 'started' as is_run_open,
                   task.status = 'queued' or attempt.started_at > now()
                     or task.started_at is distinct from attempt.started_at as is_moved,
                   case when task.run_id is null then 'nothing'
                        when attempt.run_id is null then 'unknown'
                        when attempt.ended_at is not null
                             and pgflowd._is_repeat(attempt.*, element.outcome) then 'repeated'
                        else pgflowd._lease_standing(task.*::pgflow.step_tasks, attempt.*,
                                                     run.status, state.status,
                                                     pgflowd._is_cancelled(run.run_id))
                   end as standing
              from unnest(_with_standings.elements) as element
              left join lateral (
                select one.* from pgflow.step_tasks as one
                 where one.run_id = element.run_id and one.step_slug = element.step_slug
                   and one.task_index = element.task_index offset 0) as task on true
              left join lateral (
                select one.run_id, one.status from pgflow.runs as one
                 where one.run_id = element.run_id offset 0) as run on true
              left join lateral (
                select one.status from pgflow.step_states as one
                 where one.run_id = element.run_id and one.step_slug = element.step_slug
                offset 0) as state on true
              left join pgflowd.attempts as attempt
                on attempt.run_id = element.run_id and attempt.step_slug = element.step_slug
               and attempt.task_index = element.task_index and attempt.token = element.token
            offset 0) as found
     cross join lateral (
       select case when found.outcome = 'released' and found.standing = 'live'
                        and found.wait is not null
                   then not pgflowd._may_be_unspent(
                          found.run_id, found.step_slug, found.task_index,
                          coalesce(found.delay, interval '0'),
                          make_interval(secs => (found.wait ->> 'at_most_s')::float8))
                   else false end as is_over) as asked);
end $$;
