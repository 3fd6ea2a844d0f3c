-- recover_stalled(stale_threshold, max_tasks): give back what nobody works on any more; returns
-- the number of tasks queued again.
-- Ours are stalled when their lease has lapsed. Upstream's, which have none, are stalled
-- `stale_threshold` after their timeout; and those that its own recovery gave up, which would
-- hang for ever, are failed.
-- Called by: the sweeper, operators; several at once share the work.   Locks: tasks, skipping
-- locked ones; attempts; queue rows, skipping; runs of tasks given up, unless locked.
create or replace function pgflowd.recover_stalled(
  stale_threshold interval default '60 s', max_tasks int default 500)
returns int language plpgsql set search_path = '' as $$
declare
  stalled record;
  given_back int := 0;
begin
  select array_agg(free.run_id) as run_ids,
         array_agg(free.step_slug) as step_slugs,
         array_agg(free.task_index) as task_indexes
    into stalled
    from (select task.run_id, task.step_slug, task.task_index
            from pgflowd._started_tasks(null) as started
            join pgflow.step_tasks as task using (run_id, step_slug, task_index)
           where task.status = 'started'
             and exists (select from pgflowd.attempts as attempt
                          where attempt.run_id = task.run_id and attempt.step_slug = task.step_slug
                            and attempt.task_index = task.task_index and attempt.ended_at is null
                            and attempt.attempt = task.attempts_count
                            and attempt.worker_id = task.last_worker_id
                            and attempt.lease_until < clock_timestamp())
           limit recover_stalled.max_tasks
             for no key update of task skip locked) as free;
  if stalled.run_ids is not null then
    given_back := pgflowd._recover(stalled.run_ids, stalled.step_slugs, stalled.task_indexes,
                                   'its lease lapsed', true);
  end if;
  return given_back + pgflowd._recover_unleased(recover_stalled.stale_threshold,
                                                recover_stalled.max_tasks);
end $$;
