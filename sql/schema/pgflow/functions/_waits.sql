-- _waits(flow_slug, msg_id): whether the task of this message waits now, and so has no message any more.
-- Security definer, for callers that may use schema pgflow only.
-- Called by: _start_apart.   Locks: nothing.
create or replace function pgflow._waits(flow_slug text, msg_id bigint)
returns boolean language plpgsql security definer set search_path = '', pg_temp as $$
begin
  return exists (
    select from pgflow.step_tasks as task
      join pgflowd.waits as wait
        on wait.run_id = task.run_id and wait.step_slug = task.step_slug
       and wait.task_index = task.task_index
     where task.flow_slug = _waits.flow_slug and task.message_id = _waits.msg_id);
end $$;
