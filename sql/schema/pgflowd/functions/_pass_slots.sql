-- _pass_slots(max_keys): passes on the places that reports have freed, of at most so many of them; returns
-- of how many limits. The others are met again.
-- Called by: claim, process_due.   Locks: keys of limits, ascending, if they are free; see _try_fill_slots.
create or replace function pgflowd._pass_slots(max_keys int)
returns int language plpgsql set search_path = '', pg_temp
set jit = off set enable_sort = off set enable_bitmapscan = off as $$
declare
  freed text[] := array(select slot.limit_key from pgflowd.slots as slot
                         where slot.free_at <= now() order by slot.free_at limit _pass_slots.max_keys);
  key text;
  passed int := 0;
begin
  for key in select one from unnest(freed) as one group by 1 order by 1 loop
    passed := passed + pgflowd._try_fill_slots(key)::int;
  end loop;
  return passed;
end $$;
