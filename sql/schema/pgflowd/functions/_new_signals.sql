-- _new_signals(max_rows): the oldest signals that no sweep has seen yet, whose runs are free.
-- They are taken in their order whatever the statistics say, hence no sort and no bitmap.
-- Called by: postpone_due, _process_signals.   Locks: the runs, skipping locked ones.
create or replace function pgflowd._new_signals(max_rows int)
returns table (signal_id bigint, run_id uuid, name text)
language plpgsql set search_path = '', pg_temp
set jit = off set enable_sort = off set enable_bitmapscan = off as $$
#variable_conflict use_column
begin
  return query
    select signal.signal_id, signal.run_id, signal.name
      from (select one.signal_id, one.run_id, one.name from pgflowd.signals as one
             where one.is_new order by one.sent_at) as signal
     cross join lateral (
       select from pgflow.runs as one
        where one.run_id = signal.run_id offset 0 for no key update skip locked) as run
     limit max_rows;
end $$;
