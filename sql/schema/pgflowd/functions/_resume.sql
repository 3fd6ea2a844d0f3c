-- _resume(run_id): tasks of a paused run may begin again, and its timers go on with what was left of
-- them; returns as resume does. Who waits for a place of a limit is in its line again, where it was,
-- and somebody looks who is next: meanwhile places were given to others. PF002 for an unknown run.
-- The moment is that of the clock, not of the transaction, which may be old: no wait ends early.
-- Called by: resume, retry.
-- Locks: the run, its row in pgflowd.runs, waits, slots of its tasks; see _free.
create or replace function pgflowd._resume(run_id uuid)
returns text language plpgsql set search_path = '', pg_temp as $$
declare
  ready record;
  due_at timestamptz;
begin
  perform from pgflow.runs as run where run.run_id = _resume.run_id for no key update;
  if not found and not exists (
       select from pgflowd.runs as run where run.run_id = _resume.run_id) then
    raise exception 'there is no run %', _resume.run_id using errcode = 'PF002';
  end if;
  update pgflowd.runs as run set paused_at = null, paused_by = null, pause_reason = null
   where run.run_id = _resume.run_id and run.paused_at is not null;
  if not found then
    return 'repeated';
  end if;
  update pgflow.runs as run set is_paused = false where run.run_id = _resume.run_id;
  update pgflowd.waits as wait set is_paused = false
   where wait.run_id = _resume.run_id and wait.is_paused;
  with gone_on as (
    update pgflowd.waits as wait
       set due_at = clock_timestamp() + wait.rest, rest = null,
           kind = case wait.kind when 'paused' then 'sleep' else wait.kind end
     where wait.run_id = _resume.run_id and wait.rest is not null
       and (wait.kind <> 'paused' or wait.rest > interval '0')
    returning wait.due_at
  )
  select min(gone_on.due_at) into due_at from gone_on;
  perform pgflowd._notify_due(due_at) where due_at is not null;
  select array_agg(wait.run_id) as run_ids, array_agg(wait.step_slug) as step_slugs,
         array_agg(wait.task_index) as task_indexes
    into ready
    from pgflowd.waits as wait where wait.run_id = _resume.run_id and wait.kind = 'paused';
  perform pgflowd._free(ready.run_ids, ready.step_slugs, ready.task_indexes);
  insert into pgflowd.slots as slot (run_id, step_slug, task_index, limit_key, most, free_at)
  select distinct on (wait.name) wait.run_id, wait.step_slug, wait.task_index, wait.name, 1, now()
    from pgflowd.waits as wait where wait.run_id = _resume.run_id and wait.kind = 'limit'
   order by wait.name, wait.nr
  on conflict on constraint slots_pkey do update
     set limit_key = excluded.limit_key, most = excluded.most, given_at = null,
         free_at = excluded.free_at;
  if found then
    perform pgflowd._notify_due(now());
  end if;
  return 'resumed';
end $$;
