-- _deliver_signals(run_ids, names): for each run and name, which stand for a signal or a wait that has
-- come: gives the oldest signal that nobody got to the first task that waits for it. The task finds
-- the payload in a checkpoint, and its wait is due now. Returns how many were given; if any, the
-- caller frees the tasks or notifies the sweepers.
-- The caller holds the runs, and that is why no signal is lost: of a signal and a wait, who comes
-- here second sees the first.
-- Signals are read in the order of their index of unused ones, which no other index has: they cost the
-- same however many the run was sent before. Hence the comparison of rows, and no sort.
-- Called by: _process_signals, _suspend.   Locks: nothing new.
create or replace function pgflowd._deliver_signals(run_ids uuid[], names text[])
returns int language plpgsql set search_path = '', pg_temp set jit = off set enable_sort = off as $$
declare
  given int;
begin
  with come as materialized (
    select one.run_id, one.name, count(*) as times
      from unnest(_deliver_signals.run_ids, _deliver_signals.names) as one (run_id, name)
     group by one.run_id, one.name
  ), waiting as materialized (
    select come.run_id, come.name, wait.step_slug, wait.task_index, wait.checkpoint, wait.ctid,
           row_number() over (partition by come.run_id, come.name order by wait.nr) as place,
           count(*) over (partition by come.run_id, come.name) as waits
      from come
     cross join lateral (
       select one.*, one.ctid from pgflowd.waits as one
        where one.run_id = come.run_id and one.name = come.name and one.kind = 'signal'
        order by one.nr limit come.times) as wait
  ), unused as materialized (
    select first.run_id, first.name, signal.signal_id, signal.payload,
           row_number() over (partition by first.run_id, first.name order by signal.signal_id)
             as place
      from waiting as first
     cross join lateral (
       select one.* from pgflowd.signals as one
        where (one.run_id, one.name, one.signal_id) > (first.run_id, first.name, 0)
          and one.consumed_at is null
        order by one.run_id, one.name, one.signal_id limit first.waits) as signal
     where first.place = 1 and signal.run_id = first.run_id and signal.name = first.name
  ), pair as materialized (
    select waiting.*, unused.signal_id, unused.payload
      from waiting
      join unused on unused.run_id = waiting.run_id and unused.name = waiting.name
                 and unused.place = waiting.place
  ), consumed as (
    update pgflowd.signals as signal
       set consumed_at = now(), step_slug = pair.step_slug, task_index = pair.task_index,
           is_new = false
      from pair
     where signal.signal_id = any (array(select pair.signal_id from pair))
       and signal.signal_id = pair.signal_id
  ), kept as (
    insert into pgflowd.checkpoints as known (run_id, step_slug, task_index, name, token, data)
    select pair.run_id, pair.step_slug, pair.task_index, pair.checkpoint, 0,
           jsonb_build_object('got', pair.payload)
      from pair
     where pair.checkpoint is not null
    on conflict on constraint checkpoints_pkey do update
       set data = excluded.data, token = 0, version = 1, saved_at = excluded.saved_at
  ), ended as (
    update pgflowd.waits as wait
       set kind = 'sleep', name = null, due_at = now(), rest = null
     where wait.ctid = any (array(select pair.ctid from pair))
    returning wait.run_id
  )
  select count(*) into given from ended;
  return given;
end $$;
