-- _give_slot(limit_key, most): gives a place of this limit to the first of those who wait for one, and whose
-- run and task nobody has locked: its wait ends, and the claim that meets its message begins it. One that
-- was handed on waits on for a worker that has what it needs. What is paused is passed over. False if
-- there is none.
-- Called by: _fill_slots.
-- Locks: a run, a task, skipping locked ones; then see _free. The caller has the key.
create or replace function pgflowd._give_slot(limit_key text, most int)
returns boolean language plpgsql set search_path = '', pg_temp
set jit = off set enable_sort = off set enable_bitmapscan = off as $$
declare
  next pgflowd.waits;
  queue text;
begin
  loop
    select * into next from pgflowd._next_waiter(_give_slot.limit_key, coalesce(next.nr, 0));
    if not found then
      return false;
    end if;
    select task.queue into queue
      from (select from pgflow.runs as one
             where one.run_id = next.run_id and one.status = 'started' and not one.is_paused
            offset 0 for no key update skip locked) as run
     cross join lateral (
       select one.queue_name as queue from pgflow.step_tasks as one
        where one.run_id = next.run_id and one.step_slug = next.step_slug
          and one.task_index = next.task_index and one.status = 'queued'
       offset 0 for no key update skip locked) as task;
    exit when found;
  end loop;
  update pgflowd.waits as wait set kind = 'need', name = wait.needs, needs = null
   where wait.run_id = next.run_id and wait.step_slug = next.step_slug
     and wait.task_index = next.task_index and wait.kind = 'limit' and wait.needs is not null;
  if found then
    perform pgflowd._wake(queue);
  elsif exists (select from pgflowd.waits as wait
                 where wait.run_id = next.run_id and wait.step_slug = next.step_slug
                   and wait.task_index = next.task_index and wait.kind = 'limit'
                   and wait.name = _give_slot.limit_key) then
    perform pgflowd._free(array[next.run_id], array[next.step_slug], array[next.task_index]);
  else
    return false;  -- it waits no longer, since the run was locked
  end if;
  insert into pgflowd.slots (run_id, step_slug, task_index, limit_key, most, given_at)
  values (next.run_id, next.step_slug, next.task_index, _give_slot.limit_key, _give_slot.most, now())
  on conflict on constraint slots_pkey do update
     set limit_key = excluded.limit_key, most = excluded.most, given_at = excluded.given_at,
         free_at = null;
  return true;
end $$;
