-- _start_each(flow_slug, queue_name, step_slug, msg_ids, worker_id, began, lease, with_run, are_limited,
-- with_trace): the same as _start_attempts, for messages of which one may have a task that cannot be
-- started, since its input is more than a jsonb can hold, say. It tries all, then each half by itself,
-- until the one that raises is found; that task fails with the text. What is not a matter of a single
-- task (rights, a lock, a deadlock, a full disk, a time limit) is raised as it is.
-- Called by: claim, task_claim.   Locks: as _start_attempts and _fail_unstarted.
create or replace function pgflowd._start_each(
  flow_slug text, queue_name text, step_slug text, msg_ids bigint[], worker_id uuid,
  began timestamptz, lease interval, with_run text[], are_limited boolean default false,
  with_trace boolean default false)
returns setof pgflowd.claimed_task language plpgsql set search_path = '', pg_temp as $$
declare
  middle constant int := cardinality(msg_ids) / 2;
begin
  return query select * from pgflowd._start_attempts(
    _start_each.flow_slug, _start_each.queue_name, _start_each.step_slug, msg_ids,
    _start_each.worker_id, _start_each.began, _start_each.lease,
    _start_each.with_run, _start_each.are_limited,
    _start_each.with_trace);
exception when data_exception or program_limit_exceeded or out_of_memory or internal_error
               or raise_exception then
  if middle = 0 then
    perform pgflowd._fail_unstarted(
      _start_each.flow_slug, msg_ids[1], _start_each.worker_id, sqlstate, sqlerrm);
    return;
  end if;
  return query select * from pgflowd._start_each(
    _start_each.flow_slug, _start_each.queue_name, _start_each.step_slug, msg_ids[:middle],
    _start_each.worker_id, _start_each.began, _start_each.lease,
    _start_each.with_run, _start_each.are_limited,
    _start_each.with_trace);
  return query select * from pgflowd._start_each(
    _start_each.flow_slug, _start_each.queue_name, _start_each.step_slug, msg_ids[middle + 1:],
    _start_each.worker_id, _start_each.began, _start_each.lease,
    _start_each.with_run, _start_each.are_limited,
    _start_each.with_trace);
end $$;
