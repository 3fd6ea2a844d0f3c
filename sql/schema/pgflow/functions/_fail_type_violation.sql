-- _fail_type_violation(run_id, step_slug, task_index, output): fails the run of a task whose
-- output is not an array, which a dependent map needs, whatever attempts are left and whatever
-- the step allows.
-- Called by: _complete_tasks.   Locks: task, state, messages (the run is locked already).
create or replace function pgflow._fail_type_violation(
  run_id uuid, step_slug text, task_index int, output jsonb)
returns void language plpgsql set search_path = '', pg_temp as $$
#variable_conflict use_column
declare
  kind constant text := coalesce(jsonb_typeof(_fail_type_violation.output), 'null');
  the_map text;
  the_flow text;
  message bigint;
begin
  update pgflow.step_tasks as task
     set status = 'failed', failed_at = greatest(now(), task.started_at, task.queued_at), output = _fail_type_violation.output,
         error_message = format('[TYPE_VIOLATION] Produced %s instead of array', kind)
    from pgflow.runs as run
   where task.run_id = _fail_type_violation.run_id and task.step_slug = _fail_type_violation.step_slug
     and task.task_index = _fail_type_violation.task_index
     and run.run_id = task.run_id and run.status = 'started'
  returning task.flow_slug, task.message_id into the_flow, message;
  if not found then
    return;  -- an earlier element of the batch has failed the run
  end if;

  select child.step_slug into the_map
    from pgflow.deps as dep
    join pgflow.steps as child
      on child.flow_slug = dep.flow_slug and child.step_slug = dep.step_slug
   where dep.flow_slug = the_flow and dep.dep_slug = _fail_type_violation.step_slug
     and child.step_type = 'map'
   order by child.step_index limit 1;
  perform pgflow._fail_step(
    _fail_type_violation.run_id, _fail_type_violation.step_slug,
    format('[TYPE_VIOLATION] Map step %s expects array input but dependency %s produced %s',
           the_map, _fail_type_violation.step_slug, kind),
    run_first => true);
  perform pgflow._archive(array[the_flow], array[message]);
end $$;
