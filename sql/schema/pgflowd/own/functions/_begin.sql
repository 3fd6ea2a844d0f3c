-- _begin(flow_slug, queue_name, step_slug, msg_ids, worker_id, began, lease): start the tasks
-- of these messages and open an attempt for each. Locking them first pins the number of the
-- attempt, which the core counts up. The claim's read has hidden the messages already.
-- Called by: claim.   Locks: tasks, skipping locked ones; then their attempts.
create or replace function pgflowd._begin(
  flow_slug text, queue_name text, step_slug text, msg_ids bigint[], worker_id uuid,
  began timestamptz, lease interval)
returns setof pgflowd.claimed_task language plpgsql set search_path = ''
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
declare
  free bigint[];
  attempts int[];
  queued timestamptz[];
begin
  select array_agg(task.message_id), array_agg(task.attempts_count + 1),
         array_agg(task.queued_at)
    into free, attempts, queued
    from unnest(_begin.msg_ids) as read (msg_id)
   cross join lateral (
     select one.message_id, one.attempts_count, one.queued_at from pgflow.step_tasks as one
      where one.flow_slug = _begin.flow_slug and one.message_id = read.msg_id
        and one.status = 'queued'
     offset 0 for no key update skip locked) as task;
  if free is null then
    return;
  end if;
  return query
  with begun as materialized (
    select task.*, known.attempt,
           case when known.attempt = 1 then
             greatest(0, extract(epoch from _begin.began - known.queued_at)::float8
                         - coalesce(step.opt_start_delay, 0)) end as waited_s,
           coalesce(step.opt_max_attempts, flow.opt_max_attempts) as max_attempts,
           coalesce(step.opt_timeout, flow.opt_timeout) as timeout
      from pgflow._start_tasks(_begin.flow_slug, free, _begin.worker_id, 0) as task
      join unnest(free, attempts, queued) as known (msg_id, attempt, queued_at)
        on known.msg_id = task.msg_id
      join pgflow.flows as flow on flow.flow_slug = _begin.flow_slug
      join pgflow.steps as step
        on step.flow_slug = flow.flow_slug and step.step_slug = task.step_slug
  ), opened as (
    insert into pgflowd.attempts as lease (run_id, step_slug, task_index, flow_slug, worker_id,
                                           msg_id, attempt, lease_until)
    select begun.run_id, begun.step_slug, begun.task_index, begun.flow_slug, _begin.worker_id,
           begun.msg_id, begun.attempt,
           _begin.began + coalesce(_begin.lease, make_interval(secs => begun.timeout + 2))
      from begun
    returning lease.msg_id, lease.token, lease.lease_until
  )
  select begun.flow_slug, begun.run_id, begun.step_slug, begun.input, begun.msg_id,
         begun.task_index, begun.flow_input, opened.token, begun.attempt, begun.max_attempts,
         begun.timeout, opened.lease_until, begun.waited_s
    from begun join opened on opened.msg_id = begun.msg_id;
end $$;
