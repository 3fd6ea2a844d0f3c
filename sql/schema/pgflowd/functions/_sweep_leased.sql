-- _sweep_leased(run_ids, step_slugs, task_indexes, reason, only_lapsed): queues started tasks again
-- whose attempts stalled, gives up those at `crash_limit`, and closes the attempts of those whose
-- run or step has ended. Returns how many were queued again, and how many given up. The caller
-- holds the locks of the tasks.
-- Called by: sweep, sweep_dead.   Locks: see _requeue_stalled and _give_up.
create or replace function pgflowd._sweep_leased(
  run_ids uuid[], step_slugs text[], task_indexes int[], reason text, only_lapsed boolean,
  out recovered int, out given_up int)
language plpgsql set search_path = '' as $$
declare
  kept record;
  stalled int;
begin
  given_up := 0;
  select count(*) into recovered
    from pgflowd._requeue_stalled(_sweep_leased.run_ids, _sweep_leased.step_slugs,
                            _sweep_leased.task_indexes, _sweep_leased.reason,
                            _sweep_leased.only_lapsed);
  for kept in
    select task.run_id, task.step_slug, task.task_index, attempt.token,
           run.status = 'failed' as run_failed,
           run.status <> 'started' or state.status <> 'started' as has_ended
      from unnest(_sweep_leased.run_ids, _sweep_leased.step_slugs, _sweep_leased.task_indexes)
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
     where attempt.lease_until < clock_timestamp() or not _sweep_leased.only_lapsed
     order by task.run_id, task.step_slug, task.task_index
  loop
    if not kept.has_ended then
      stalled := pgflowd._stalled_in_a_row(kept.run_id, kept.step_slug, kept.task_index) + 1;
      if pgflowd._give_up(
           kept.run_id, kept.step_slug, kept.task_index,
           format('stalled %s times in a row, the last time because %s',
                  stalled, _sweep_leased.reason)) then
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
