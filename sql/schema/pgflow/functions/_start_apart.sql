-- _start_apart(flow_slug, msg_ids, worker_id): starts the tasks of these messages one by one, since
-- one of them cannot be started; that one fails with the text, and the others start. One whose message
-- is gone, since it has begun to wait after it was read, is passed over; without a reason that raises.
-- Called by: start_tasks.   Locks: tasks (skips locked), messages; see pgflowd._fail_unstarted.
create or replace function pgflow._start_apart(flow_slug text, msg_ids bigint[], worker_id uuid)
returns setof pgflow.step_task_record language plpgsql set search_path = '', pg_temp as $$
declare
  msg_id bigint;
begin
  foreach msg_id in array msg_ids loop
    begin
      return query
        select _start_apart.flow_slug, task.run_id, task.step_slug, task.input, task.msg_id,
               task.task_index, task.flow_input
          from pgflow._start_tasks(
                 _start_apart.flow_slug, array[msg_id], _start_apart.worker_id) as task;
    exception
      when data_exception or program_limit_exceeded or out_of_memory or internal_error then
        perform pgflowd._fail_unstarted(
          _start_apart.flow_slug, msg_id, _start_apart.worker_id, sqlstate, sqlerrm);
      when object_not_in_prerequisite_state then
        if not pgflow._waits(_start_apart.flow_slug, msg_id) then
          raise;
        end if;
    end;
  end loop;
end $$;
