-- _lock_stalled_leases(worker_id, only_lapsed, max_tasks): locks started tasks whose attempts stalled, and
-- returns their keys: all of this worker, or with `only_lapsed` those of any worker whose lease has lapsed.
-- Called by: postpone_stalled, _sweep_leased.   Locks: tasks, skipping locked ones.
create or replace function pgflowd._lock_stalled_leases(
  worker_id uuid, only_lapsed boolean, max_tasks int,
  out run_ids uuid[], out step_slugs text[], out task_indexes int[])
language plpgsql set search_path = '', pg_temp as $$
begin
  select array_agg(free.run_id), array_agg(free.step_slug), array_agg(free.task_index)
    into run_ids, step_slugs, task_indexes
    from (select task.run_id, task.step_slug, task.task_index
            from pgflowd._started_tasks(_lock_stalled_leases.worker_id) as started
            join pgflow.step_tasks as task using (run_id, step_slug, task_index)
           where task.status = 'started'
             and case when _lock_stalled_leases.only_lapsed then exists (
                   select from pgflowd.attempts as attempt
                    where attempt.run_id = task.run_id and attempt.step_slug = task.step_slug
                      and attempt.task_index = task.task_index and attempt.ended_at is null
                      and attempt.attempt = task.attempts_count
                      and attempt.worker_id = coalesce(task.last_worker_id, attempt.worker_id)
                      and attempt.lease_until < clock_timestamp())
                 else task.last_worker_id = _lock_stalled_leases.worker_id end
           limit _lock_stalled_leases.max_tasks
             for no key update of task skip locked) as free;
end $$;
