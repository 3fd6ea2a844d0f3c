-- run_troubles(run_id, after, max_rows, before, before_token): returns the attempts of a run that ended
-- without an output, oldest first, and when the task may be claimed again, if it will be; of more than
-- `max_rows` the newest. With `after` only those that ended at that time or later, with `before` those
-- that ended before it, or then, and have a smaller token.
-- Called by: commands.   Locks: nothing.
create or replace function pgflowd.run_troubles(
  run_id uuid, after timestamptz default null, max_rows int default 1000,
  before timestamptz default null, before_token bigint default null)
returns table (step_slug text, task_index int, token bigint, attempt int, max_attempts int,
               outcome text, error_type text, error_message text, traceback text,
               started_at timestamptz, ended_at timestamptz, next_at timestamptz,
               printed_lines int)
language sql stable set search_path = '', pg_temp as $$
  select attempt.step_slug, attempt.task_index, attempt.token, attempt.attempt,
         coalesce(step.opt_max_attempts, flow.opt_max_attempts), attempt.outcome,
         attempt.error_type, attempt.error_message, attempt.traceback, attempt.started_at,
         attempt.ended_at,
         case when task.status = 'queued' then (
           select message.visible_at
             from pgflowd._visible_at(task.queue_name, array[task.message_id]) as message)
         end,
         attempt.printed_lines
    from (select one.* from pgflowd.attempts as one
           where one.run_id = run_troubles.run_id
             and one.outcome in ('failed', 'timed_out', 'crashed', 'stalled', 'released', 'late')
             and (run_troubles.after is null or one.ended_at >= run_troubles.after)
             and (one.ended_at < coalesce(run_troubles.before, 'infinity')
                  or one.ended_at = run_troubles.before and one.token < run_troubles.before_token)
           order by one.ended_at desc, one.token desc limit run_troubles.max_rows) as attempt
   cross join lateral (
     select one.flow_slug, one.step_slug, one.status, one.message_id,
            case when one.status = 'queued' then one.queue_name end as queue_name
       from pgflow.step_tasks as one
      where one.run_id = attempt.run_id and one.step_slug = attempt.step_slug
        and one.task_index = attempt.task_index offset 0) as task
    join pgflow.steps as step
      on step.flow_slug = task.flow_slug and step.step_slug = task.step_slug
    join pgflow.flows as flow on flow.flow_slug = task.flow_slug
   order by attempt.ended_at, attempt.token;
$$;
