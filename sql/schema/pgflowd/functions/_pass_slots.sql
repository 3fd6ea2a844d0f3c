-- _pass_slots(max_keys): passes on the places that reports have freed, of at most so many of them; returns
-- of how many limits. A limit about which another transaction decides is met again; one that raises is
-- tried again in a minute.
-- Called by: claim, process_due.   Locks: keys of limits, ascending, if they are free; see _fill_slots.
create or replace function pgflowd._pass_slots(max_keys int)
returns int language plpgsql set search_path = '' set enable_sort = off set enable_bitmapscan = off as $$
declare
  freed text[] := array(select slot.limit_key from pgflowd.slots as slot
                         where slot.free_at <= now() order by slot.free_at limit _pass_slots.max_keys);
  key text;
  passed int := 0;
begin
  for key in select one from unnest(freed) as one group by 1 order by 1 loop
    continue when not pg_try_advisory_xact_lock(3, hashtext(key));
    begin
      if pgflowd._fill_slots(key) then
        passed := passed + 1;
      end if;
    exception when others then
      update pgflowd.slots as slot set free_at = now() + interval '1 minute'
       where slot.limit_key = key and slot.free_at is not null;
    end;
  end loop;
  return passed;
end $$;
