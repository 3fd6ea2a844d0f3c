-- activities: each attempt that is kept, with what it got and what came of it: `select … where input ->>
-- 'url' like …`. Input and output are read from the run, its steps and its tasks; only an attempt that
-- has not completed its task has an output of its own. An input is computed for each row, so ask for a
-- run, a flow or a time first.
create or replace view pgflowd.activities as
  select attempt.run_id, attempt.flow_slug, attempt.step_slug, attempt.task_index, attempt.token,
         attempt.attempt, attempt.outcome, attempt.started_at, attempt.ended_at,
         extract(epoch from attempt.ended_at - attempt.started_at)::float8 as took_s,
         pgflowd._task_input(attempt.run_id, attempt.step_slug, attempt.task_index) as input,
         case when attempt.outcome = 'completed' then (
                select task.output from pgflow.step_tasks as task
                 where task.run_id = attempt.run_id and task.step_slug = attempt.step_slug
                   and task.task_index = attempt.task_index)
              else attempt.output end as output,
         attempt.error_type, attempt.error_message, attempt.worker_id
    from pgflowd.attempts as attempt;
