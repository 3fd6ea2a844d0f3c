-- _start_attempts(flow_slug, queue_name, step_slug, msg_ids, worker_id, began, lease, with_run,
-- are_limited, with_trace):
-- starts the tasks of these messages and opens an attempt for each. The claim's read has
-- hidden the messages. The run's input comes with first steps, and with one task of each run whose step
-- is among `with_run`, unless it takes more than 64 kB as it is stored: claims stay small.
-- With `are_limited` some have a place of a limit, whose key the attempt gets, so that its report frees it.
-- Called by: claim, _hold_task, _start_each.
-- Locks: tasks, skipping locked ones; then their attempts.
create or replace function pgflowd._start_attempts(
  flow_slug text, queue_name text, step_slug text, msg_ids bigint[], worker_id uuid,
  began timestamptz, lease interval, with_run text[], are_limited boolean default false,
  with_trace boolean default false)
returns setof pgflowd.claimed_task language plpgsql set search_path = '', pg_temp as $$
begin
  return query
  with begun as materialized (
    select * from pgflow._start_tasks(_start_attempts.flow_slug, _start_attempts.msg_ids, _start_attempts.worker_id, 0)
  ), opened as (
    insert into pgflowd.attempts as lease (run_id, step_slug, task_index, flow_slug, worker_id,
                                           msg_id, attempt, limit_key, lease_until)
    select begun.run_id, begun.step_slug, begun.task_index, _start_attempts.flow_slug, _start_attempts.worker_id,
           begun.msg_id, begun.attempt,
           case when _start_attempts.are_limited then (
             select slot.limit_key from pgflowd.slots as slot
              where slot.run_id = begun.run_id and slot.step_slug = begun.step_slug
                and slot.task_index = begun.task_index and slot.given_at is null) end,
           _start_attempts.began + coalesce(_start_attempts.lease, make_interval(secs => begun.timeout + 2))
      from begun
    returning lease.msg_id, lease.token, lease.lease_until
  )
  select _start_attempts.flow_slug, begun.run_id, begun.step_slug, begun.input, begun.msg_id,
         begun.task_index,
         case when begun.flow_input is null and begun.step_slug = any (_start_attempts.with_run)
                   and begun.msg_id in (select min(one.msg_id) from begun as one
                                         where one.step_slug = any (_start_attempts.with_run)
                                         group by one.run_id)
              then (select run.input from pgflow.runs as run
                     where run.run_id = begun.run_id and pg_column_size(run.input) <= 65536)
              else begun.flow_input end,
         opened.token, begun.attempt, begun.max_attempts,
         begun.timeout, opened.lease_until,
         case when begun.due_at is not null
              then greatest(0, extract(epoch from _start_attempts.began - begun.due_at)::float8) end,
         case when _start_attempts.with_trace
                   and (exists (select from pgflowd.runs as ours
                                 where ours.run_id = begun.run_id offset 0)
                        or exists (select from pgflowd.attempts as before
                                    where before.run_id = begun.run_id
                                      and before.step_slug = begun.step_slug
                                      and before.task_index = begun.task_index offset 0))
              then pgflowd._trace_of(begun.run_id, begun.step_slug, begun.task_index, opened.token) end
    from begun join opened on opened.msg_id = begun.msg_id;
end $$;
