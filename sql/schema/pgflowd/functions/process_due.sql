-- process_due(max_rows, part): passes on places of limits, gives new signals to the tasks that wait for them,
-- starts and ends runs whose time has come, tells those who wait for a run that it has ended, and frees
-- tasks whose wait is over, each at most so many, and runs with at most a hundred times as many tasks, or
-- one. With `part` only one of these: signals, limits, runs, awaits, waits. A run that may begin since another one has ended
-- begins in the same call. Returns how much it has done (null: another one is at it), and in how many
-- seconds there may be more to do (null: nothing is known), and whether schedules are due, whose ticks
-- only a daemon can compute (due_schedules, tick). While nothing is due it costs one statement with six
-- looks into partial indexes. One at a time in the whole database, so that sweeps do not do the same
-- work. What is late by a second is done by whoever comes, as that one may be frozen. A run
-- that is locked is passed over, and met again: soon, then ever later, at most after a second. Due times
-- are compared with now(): the clock is volatile, and no index would serve. Without sorts what comes
-- first is found by the one index that has the order, whatever the statistics say.
-- Called by: the sweeper; operators.
-- Locks: runs, skipping locked ones, so it waits for no report; signals; see _end_due_waits,
-- _process_due_awaits and _process_due_runs.
create or replace function pgflowd.process_due(
  max_rows int default 200, part text default null, out done int, out next_s float8, out has_ticks boolean)
language plpgsql set search_path = '', pg_temp set jit = off set enable_sort = off as $$
declare
  due_at timestamptz;
  tick_at timestamptz;
  awaits int := 0;
  skipped_at timestamptz;
begin
  done := 0;
  select least((select slot.free_at from pgflowd.slots as slot
                 where slot.free_at is not null order by slot.free_at limit 1),
               (select wait.due_at from pgflowd.waits as wait
                 where wait.due_at is not null order by wait.due_at limit 1),
               (select run.due_at from pgflowd.runs as run
                 where run.due_at is not null order by run.due_at limit 1),
               (select one.due_at from pgflowd.awaits as one
                 where one.due_at is not null order by one.due_at limit 1),
               (select least(signal.sent_at, now()) from pgflowd.signals as signal
                 where signal.is_new order by signal.sent_at limit 1)),
         (select schedule.due_at from pgflowd.schedules as schedule
           where schedule.due_at is not null order by schedule.due_at limit 1)
    into due_at, tick_at;
  has_ticks := coalesce(tick_at <= now(), false);
  if due_at > now() or due_at is null then
    next_s := extract(epoch from least(due_at, tick_at) - clock_timestamp());
    return;
  elsif not pgflowd._lock_name('work', 'process_due', false) and due_at > now() - interval '1 second' then
    done := null;
    next_s := 0.05;
    return;
  end if;

  if coalesce(process_due.part, 'signals') = 'signals' then
    done := done + pgflowd._process_signals(process_due.max_rows);
  end if;
  if coalesce(process_due.part, 'limits') = 'limits' then
    done := done + pgflowd._pass_slots(process_due.max_rows);
  end if;
  if coalesce(process_due.part, 'runs') = 'runs' then
    done := done + pgflowd._process_due_runs(process_due.max_rows);
  end if;
  if coalesce(process_due.part, 'awaits') = 'awaits' then
    awaits := pgflowd._process_due_awaits(process_due.max_rows);
  end if;
  if awaits > 0 then
    done := done + awaits;
    if process_due.part is null then
      done := done + pgflowd._process_due_runs(process_due.max_rows);
    end if;
  end if;
  if coalesce(process_due.part, 'waits') = 'waits' then
    done := done + pgflowd._end_due_waits(process_due.max_rows);
  end if;
  if done > 0 then
    next_s := 0;
    return;
  end if;

  update pgflowd.signals as signal set is_new = false   -- of planned runs: their tasks look for them
   where signal.signal_id = any (array(
     select one.signal_id from pgflowd.signals as one
      where one.is_new
        and exists (select from pgflowd.runs as run
                     where run.run_id = one.run_id and run.state = 'planned')
      order by one.sent_at limit process_due.max_rows));
  delete from pgflowd.signals as signal   -- of runs that were deleted while the signal came
   where signal.signal_id = any (array(
     select one.signal_id from pgflowd.signals as one
      where one.is_new
        and not exists (select from pgflow.runs as run where run.run_id = one.run_id)
        and not exists (select from pgflowd.runs as run
                         where run.run_id = one.run_id and run.state = 'planned')
      order by one.sent_at limit process_due.max_rows));
  skipped_at := greatest(
    (select slot.free_at from pgflowd.slots as slot
      where slot.free_at <= now() order by slot.free_at desc limit 1),
    (select wait.due_at from pgflowd.waits as wait
      where wait.due_at <= now() order by wait.due_at desc limit 1),
    (select run.due_at from pgflowd.runs as run
      where run.due_at <= now() order by run.due_at desc limit 1),
    (select one.due_at from pgflowd.awaits as one
      where one.due_at <= now() order by one.due_at desc limit 1),
    (select least(signal.sent_at, now()) from pgflowd.signals as signal
      where signal.is_new order by signal.sent_at desc limit 1));
  next_s := extract(epoch from least(
    (select wait.due_at from pgflowd.waits as wait
      where wait.due_at > now() order by wait.due_at limit 1) - clock_timestamp(),
    (select run.due_at from pgflowd.runs as run
      where run.due_at > now() order by run.due_at limit 1) - clock_timestamp(),
    (select one.due_at from pgflowd.awaits as one
      where one.due_at > now() order by one.due_at limit 1) - clock_timestamp(),
    case when not has_ticks then tick_at - clock_timestamp() end,
    case when skipped_at is not null
         then least(interval '1 second', greatest(interval '10 ms', now() - skipped_at)) end));
end $$;
