-- _stored_value(run_id, step_slug, task_index, what): returns the input of a run, or the output of a run,
-- of a step or of a task, as it is stored. `missing` stands for the output of steps, which some cores do
-- not keep; there a step has that of its first task.
-- Called by: value_part.   Locks: nothing.
create or replace function pgflowd._stored_value(
  run_id uuid, step_slug text, task_index int, what text)
returns jsonb language sql stable set search_path = '', pg_temp as $$
  select case when _stored_value.what = 'input' and _stored_value.step_slug is null then coalesce(
                (select run.input from pgflow.runs as run where run.run_id = _stored_value.run_id),
                (select run.input from pgflowd.runs as run where run.run_id = _stored_value.run_id))
              when _stored_value.what <> 'output' then null
              when _stored_value.step_slug is null then (
                select run.output from pgflow.runs as run where run.run_id = _stored_value.run_id)
              when _stored_value.task_index is null then coalesce((
                select state.output
                  from (values (null::jsonb)) as missing (output)
                 cross join lateral (
                   select output from pgflow.step_states as one
                    where one.run_id = _stored_value.run_id
                      and one.step_slug = _stored_value.step_slug offset 0) as state),
                (select task.output from pgflow.step_tasks as task
                  where task.run_id = _stored_value.run_id
                    and task.step_slug = _stored_value.step_slug and task.task_index = 0
                    and not exists (select from pgflow.steps as step
                                     where step.flow_slug = task.flow_slug
                                       and step.step_slug = task.step_slug and step.step_type = 'map')))
              else (
                select task.output from pgflow.step_tasks as task
                 where task.run_id = _stored_value.run_id
                   and task.step_slug = _stored_value.step_slug
                   and task.task_index = _stored_value.task_index) end;
$$;
