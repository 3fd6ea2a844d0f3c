-- _count_slots(keys): for each of these limits how many places are taken, and whether somebody waits for
-- one who may begin. Rows of places that nobody has any more are deleted, but not those that a report
-- has freed, which tell that somebody is to look who is next. A place is taken while its attempt is
-- open, in a run that has ended until the lease is over: its handler may still work (a person has no
-- handler that could). One that was given to a task which is next is taken for 30 s at most, so that a
-- flow without workers keeps no place from others. `offset 0` keeps each look one by the whole key: else
-- all that exists may be read and hashed.
-- Called by: _check_limits, _fill_slots.   Locks: slots; the caller has the keys.
create or replace function pgflowd._count_slots(keys text[])
returns table (limit_key text, taken int, has_waiters boolean)
language plpgsql set search_path = '', pg_temp as $$
begin
  delete from pgflowd.slots as slot
   where slot.limit_key = any (_count_slots.keys) and slot.free_at is null
     and not case
       when slot.given_at is null then exists (
         select from pgflowd.attempts as attempt
           join pgflow.runs as run on run.run_id = attempt.run_id
          where attempt.run_id = slot.run_id and attempt.step_slug = slot.step_slug
            and attempt.task_index = slot.task_index and attempt.ended_at is null
            and (run.status = 'started'
                 or attempt.lease_until > clock_timestamp()
                    and not pgflowd._is_person(attempt.worker_id)) offset 0)
       else slot.given_at > now() - interval '30 s' and exists (
         select from pgflow.step_tasks as task
           join pgflow.runs as run on run.run_id = task.run_id and run.status = 'started'
          where task.run_id = slot.run_id and task.step_slug = slot.step_slug
            and task.task_index = slot.task_index and task.status = 'queued' offset 0)
         and not exists (
         select from pgflowd.waits as wait
          where wait.run_id = slot.run_id and wait.step_slug = slot.step_slug
            and wait.task_index = slot.task_index and wait.kind <> 'need' offset 0) end;
  return query
    select key.name,
           (select count(*)::int from pgflowd.slots as slot
             where slot.limit_key = key.name and slot.free_at is null),
           exists (select from pgflowd._next_waiter(key.name))
      from unnest(_count_slots.keys) as key (name);
end $$;
