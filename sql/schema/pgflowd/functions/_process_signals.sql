-- _process_signals(max_rows): gives new signals to the tasks that wait for them; returns how many it has
-- dealt with. Those of planned runs are marked as seen, since tasks look for what came before them. Of
-- these it takes fifty times as many, and nothing else then: so each is read once, and not again in every
-- look until those before it are gone.
-- Called by: process_due.   Locks: signals; see _new_signals.
create or replace function pgflowd._process_signals(max_rows int)
returns int language plpgsql set search_path = '', pg_temp set jit = off
  set enable_sort = off set enable_bitmapscan = off as $$
declare
  width int := _process_signals.max_rows;
  early int := 0;
  marked int;
  came record;
begin
  loop
    update pgflowd.signals as signal set is_new = false
     where signal.signal_id = any (array(
       select one.signal_id
         from (select other.signal_id, other.run_id from pgflowd.signals as other
                where other.is_new order by other.sent_at limit width) as one
        cross join lateral (
          select from pgflowd.runs as run
           where run.run_id = one.run_id and run.state = 'planned' offset 0) as planned
        where not exists (select from pgflow.runs as run where run.run_id = one.run_id)));
    get diagnostics marked = row_count;
    early := early + marked;
    exit when marked = 0 or width > _process_signals.max_rows;
    width := 50 * _process_signals.max_rows;
  end loop;
  if early > _process_signals.max_rows then
    return early;
  end if;

  select array_agg(signal.signal_id) as signal_ids, array_agg(signal.run_id) as run_ids,
         array_agg(signal.name) as names, count(*)::int as number
    into came from pgflowd._new_signals(_process_signals.max_rows) as signal;
  if came.number > 0 then
    update pgflowd.signals as signal set is_new = false
     where signal.signal_id = any (came.signal_ids) and signal.is_new;
    perform pgflowd._deliver_signals(came.run_ids, came.names);
  end if;
  return early + came.number;
end $$;
