-- _postpone_lease(run_id, step_slug, task_index, why): a stalled task cannot be recovered now: its lease is
-- taken for a minute longer. A notice, PF013, says so: its detail is an object with run, step, task_index
-- and error.
-- Called by: postpone_stalled, _recover_tasks.   Locks: attempts; the caller holds the task.
create or replace function pgflowd._postpone_lease(
  run_id uuid, step_slug text, task_index int, why text)
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  update pgflowd.attempts as attempt set lease_until = now() + interval '1 minute'
   where attempt.run_id = _postpone_lease.run_id and attempt.step_slug = _postpone_lease.step_slug
     and attempt.task_index = _postpone_lease.task_index and attempt.ended_at is null;
  raise notice '% cannot be recovered: %', pgflowd._task_name(
    _postpone_lease.run_id, _postpone_lease.step_slug, _postpone_lease.task_index), _postpone_lease.why
    using errcode = 'PF013', detail = jsonb_build_object(
      'run', _postpone_lease.run_id, 'step', _postpone_lease.step_slug,
      'task_index', _postpone_lease.task_index, 'error', _postpone_lease.why);
end $$;
