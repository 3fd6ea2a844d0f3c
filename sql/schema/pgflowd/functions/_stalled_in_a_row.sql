-- _stalled_in_a_row(run_id, step_slug, task_index): returns how many of a task's last attempts
-- stalled. Attempts that were released or lost prove nothing about the task and do not count, unless
-- its handler asked for the release: so it has not ended its worker. After it was given up once
-- (E408), a task that is tried again counts from zero.
-- Called by: _recover_some, _requeue_stalled, stalled_tasks, _sweep_unleased_task, view task_status.
-- Locks: nothing.
create or replace function pgflowd._stalled_in_a_row(run_id uuid, step_slug text, task_index int)
returns int language plpgsql stable set search_path = '', pg_temp as $$
begin
  return (
    select count(*)
      from pgflowd.attempts as attempt
     where attempt.run_id = _stalled_in_a_row.run_id
       and attempt.step_slug = _stalled_in_a_row.step_slug
       and attempt.task_index = _stalled_in_a_row.task_index
       and attempt.outcome = 'stalled'
       and attempt.token > coalesce((
         select max(other.token)
           from pgflowd.attempts as other
          where other.run_id = attempt.run_id and other.step_slug = attempt.step_slug
            and other.task_index = attempt.task_index
            and (other.outcome in ('completed', 'failed', 'timed_out', 'crashed', 'late',
                                   'suspended')
                 or other.outcome = 'released' and other.error_type = 'RetryAfter'
                 or other.error_type = 'E408')), 0));
end $$;
