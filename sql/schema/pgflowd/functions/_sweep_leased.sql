-- _sweep_leased(worker_id, reason, only_lapsed, max_tasks): queues started tasks again whose attempts
-- stalled: all of this worker, or with `only_lapsed` those of any worker whose lease has lapsed. Gives
-- up those at `crash_limit`, or sets them aside (_quarantine), and closes the attempts of those whose
-- run or step has ended. Returns how many were queued again, and how many given up.
-- Called by: sweep, sweep_dead.
-- Locks: tasks, skipping locked ones; see _requeue_stalled and _give_up.
create or replace function pgflowd._sweep_leased(
  worker_id uuid, reason text, only_lapsed boolean, max_tasks int,
  out recovered int, out given_up int)
language plpgsql set search_path = '', pg_temp as $$
declare
  stalled record;
  kept record;
  times int;
  problem text;
begin
  select array_agg(free.run_id) as run_ids,
         array_agg(free.step_slug) as step_slugs,
         array_agg(free.task_index) as task_indexes
    into stalled
    from (select task.run_id, task.step_slug, task.task_index
            from pgflowd._started_tasks(_sweep_leased.worker_id) as started
            join pgflow.step_tasks as task using (run_id, step_slug, task_index)
           where task.status = 'started'
             and case when only_lapsed then exists (
                   select from pgflowd.attempts as attempt
                    where attempt.run_id = task.run_id and attempt.step_slug = task.step_slug
                      and attempt.task_index = task.task_index and attempt.ended_at is null
                      and attempt.attempt = task.attempts_count
                      and attempt.worker_id = coalesce(task.last_worker_id, attempt.worker_id)
                      and attempt.lease_until < clock_timestamp())
                 else task.last_worker_id = _sweep_leased.worker_id end
           limit _sweep_leased.max_tasks
             for no key update of task skip locked) as free;
  given_up := 0;
  select count(*) into recovered
    from pgflowd._requeue_stalled(stalled.run_ids, stalled.step_slugs, stalled.task_indexes,
                                  _sweep_leased.reason, only_lapsed);
  for kept in
    select task.run_id, task.step_slug, task.task_index, attempt.token,
           run.status = 'failed' as run_failed,
           run.status <> 'started' or state.status <> 'started' as has_ended
      from unnest(stalled.run_ids, stalled.step_slugs, stalled.task_indexes)
           as given (run_id, step_slug, task_index)
     cross join lateral (
       select one.* from pgflow.step_tasks as one
        where one.run_id = given.run_id and one.step_slug = given.step_slug
          and one.task_index = given.task_index and one.status = 'started' offset 0) as task
      join pgflow.runs as run on run.run_id = task.run_id
      join pgflow.step_states as state
        on state.run_id = task.run_id and state.step_slug = task.step_slug
      join pgflowd.attempts as attempt
        on attempt.run_id = task.run_id and attempt.step_slug = task.step_slug
       and attempt.task_index = task.task_index and attempt.ended_at is null
       and attempt.attempt = task.attempts_count
     where attempt.lease_until < clock_timestamp() or not only_lapsed
     order by task.run_id, task.step_slug, task.task_index
  loop
    if not kept.has_ended then
      times := pgflowd._stalled_in_a_row(kept.run_id, kept.step_slug, kept.task_index) + 1;
      problem := format('stalled %s times in a row, the last time because %s',
                        times, _sweep_leased.reason);
      if not (pgflowd._crash_limit(kept.run_id, kept.step_slug)).does_fail then
        perform pgflowd._quarantine(kept.run_id, kept.step_slug, kept.task_index, problem);
        given_up := given_up + 1;
      elsif pgflowd._give_up(kept.run_id, kept.step_slug, kept.task_index, problem) then
        given_up := given_up + 1;
      end if;
    else
      update pgflowd.attempts as attempt
         set ended_at = now(), outcome = 'stalled', error_message = _sweep_leased.reason
       where attempt.token = kept.token;
      if kept.run_failed and pgflowd._lock_run(kept.run_id, 'failed') then
        perform pgflow.fail_task(kept.run_id, kept.step_slug, kept.task_index,
                                 _sweep_leased.reason);
      end if;
    end if;
  end loop;
end $$;
