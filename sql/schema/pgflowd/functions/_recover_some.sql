-- _recover_some(run_ids, step_slugs, task_indexes, reason, only_lapsed): queues these started tasks again.
-- Gives up those at `crash_limit`, or sets them aside (_quarantine), and closes the attempts of those whose
-- run or step has ended. Returns how many were queued again, and how many given up.
-- Called by: _recover_tasks.   Locks: see _requeue_stalled and _give_up; the caller holds the tasks.
create or replace function pgflowd._recover_some(
  run_ids uuid[], step_slugs text[], task_indexes int[], reason text, only_lapsed boolean,
  out recovered int, out given_up int)
language plpgsql set search_path = '', pg_temp as $$
declare
  kept record;
  times int;
  problem text;
begin
  given_up := 0;
  select count(*) into recovered
    from pgflowd._requeue_stalled(_recover_some.run_ids, _recover_some.step_slugs, _recover_some.task_indexes,
                                  _recover_some.reason, only_lapsed);
  for kept in
    select task.run_id, task.step_slug, task.task_index, attempt.token,
           run.status = 'failed' as run_failed,
           run.status <> 'started' or state.status <> 'started' as has_ended
      from unnest(_recover_some.run_ids, _recover_some.step_slugs, _recover_some.task_indexes)
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
                        times, _recover_some.reason);
      if not (pgflowd._crash_limit(kept.run_id, kept.step_slug)).does_fail then
        perform pgflowd._quarantine(kept.run_id, kept.step_slug, kept.task_index, problem);
        given_up := given_up + 1;
      elsif pgflowd._give_up(kept.run_id, kept.step_slug, kept.task_index, problem) then
        given_up := given_up + 1;
      end if;
    else
      update pgflowd.attempts as attempt
         set ended_at = now(), outcome = 'stalled', error_message = _recover_some.reason
       where attempt.token = kept.token;
      if kept.run_failed and pgflowd._lock_run(kept.run_id, 'failed') then
        perform pgflow.fail_task(kept.run_id, kept.step_slug, kept.task_index,
                                 _recover_some.reason);
      end if;
    end if;
  end loop;
end $$;
