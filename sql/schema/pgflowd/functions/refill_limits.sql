-- refill_limits(after_key, max_keys): gives places that those who died have left to those who wait, for so
-- many limits behind this one. Returns behind which one to go on, null from the first again.
-- Called by: recover_stalled; the sweeper.
-- Locks: keys of limits, ascending, if they are free; see _try_fill_slots.
create or replace function pgflowd.refill_limits(after_key text default null, max_keys int default 1000)
returns text language plpgsql set search_path = '', pg_temp
set jit = off set enable_sort = off set enable_bitmapscan = off as $$
declare
  key text := coalesce(refill_limits.after_key, '');
begin
  for n in 1 .. max_keys loop
    select wait.name into key from pgflowd.waits as wait
     where wait.kind = 'limit' and not wait.is_paused and wait.name > key order by wait.name limit 1;
    if not found then
      return null;
    end if;
    perform pgflowd._try_fill_slots(key);
  end loop;
  return key;
end $$;
