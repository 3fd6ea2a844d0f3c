-- start_tasks(flow_slug, msg_ids, worker_id, …): the claim of workers of other runtimes, after they have
-- read the messages. A task that cannot be started fails, and one that waits is passed over
-- (_start_apart). The second form is that of 0.17. It names the queue, and the step where a flow has a
-- queue per step, which ours never have.
-- Called by: workers of other runtimes.
-- Locks: tasks (skips locked), then messages; see pgflowd._fail_unstarted.
create or replace function pgflow.start_tasks(flow_slug text, msg_ids bigint[], worker_id uuid)
returns setof pgflow.step_task_record language plpgsql set search_path = '', pg_temp as $$
begin
  return query
    select start_tasks.flow_slug, task.run_id, task.step_slug, task.input, task.msg_id,
           task.task_index, task.flow_input
      from pgflow._start_tasks(
             start_tasks.flow_slug, start_tasks.msg_ids, start_tasks.worker_id) as task;
exception when data_exception or program_limit_exceeded or out_of_memory or internal_error
               or object_not_in_prerequisite_state then
  return query select * from pgflow._start_apart(
    start_tasks.flow_slug, start_tasks.msg_ids, start_tasks.worker_id);
end $$;

create or replace function pgflow.start_tasks(
  flow_slug text, msg_ids bigint[], worker_id uuid, queue_name text, step_slug text default null)
returns setof pgflow.step_task_record language plpgsql set search_path = '', pg_temp as $$
begin
  if queue_name is null then
    raise exception 'start_tasks needs the name of the queue' using errcode = 'null_value_not_allowed';
  elsif not pgflow.flow_exists(start_tasks.flow_slug) then
    return;
  elsif step_slug is not null then
    raise exception 'flow % has one queue for all its steps, so step_slug must be null',
                    start_tasks.flow_slug using errcode = 'invalid_parameter_value';
  elsif queue_name <> pgflow._queue_name(start_tasks.flow_slug) then
    raise exception 'queue % is not the queue of flow %', queue_name, start_tasks.flow_slug
      using errcode = 'invalid_parameter_value',
            hint = 'It is called ' || pgflow._queue_name(start_tasks.flow_slug) || '.';
  end if;
  begin
    return query
      select start_tasks.flow_slug, task.run_id, task.step_slug, task.input, task.msg_id,
             task.task_index, task.flow_input
        from pgflow._start_tasks(
               start_tasks.flow_slug, start_tasks.msg_ids, start_tasks.worker_id) as task;
  exception when data_exception or program_limit_exceeded or out_of_memory or internal_error
                 or object_not_in_prerequisite_state then
    return query select * from pgflow._start_apart(
      start_tasks.flow_slug, start_tasks.msg_ids, start_tasks.worker_id);
  end;
end $$;
