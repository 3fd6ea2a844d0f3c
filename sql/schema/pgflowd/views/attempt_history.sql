-- attempt_history: every attempt that is kept, with its outcome. An open row that its task no
-- longer names has outcome `lost`; the next report, claim or heartbeat that finds it closes it.
-- `live` attempts may report. The look-up of cancelled runs stands here, so that it is done with the
-- rights of the view's owner: a role that may read the view needs no right on the tables below.
create or replace view pgflowd.attempt_history as
  select attempt.run_id, attempt.step_slug, attempt.task_index, attempt.token, attempt.flow_slug,
         attempt.worker_id, attempt.msg_id, attempt.attempt, attempt.started_at,
         attempt.lease_until, attempt.ended_at,
         case when attempt.ended_at is not null then attempt.outcome
              when judged.standing = 'lost' then 'lost' end as outcome,
         coalesce(judged.standing = 'live', false) as live,
         attempt.error_type, attempt.error_message, attempt.traceback, attempt.exit_code,
         attempt.exit_signal, attempt.cpu_s, attempt.peak_kb, attempt.output, attempt.progress,
         attempt.printed, attempt.printed_lines
    from pgflowd.attempts as attempt
    left join lateral (
      select pgflowd._lease_standing(task, attempt.*, run.status, state.status, exists (
               select from pgflowd.runs as cancelled
                where cancelled.run_id = run.run_id and cancelled.cancelled_at is not null))
             as standing
        from pgflow.step_tasks as task
        join pgflow.runs as run on run.run_id = task.run_id
        join pgflow.step_states as state
          on state.run_id = task.run_id and state.step_slug = task.step_slug
       where task.run_id = attempt.run_id and task.step_slug = attempt.step_slug
         and task.task_index = attempt.task_index) as judged on attempt.ended_at is null;
