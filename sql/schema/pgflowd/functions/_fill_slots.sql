-- _fill_slots(limit_key): gives places of this limit, as long as one is free, to those who wait, in
-- their order. How many there are is what the step of the first of them says. Who is paused does not
-- wait here. True if nothing is left to do; false if those who wait are locked: then rows of places that
-- reports have freed stay, so it is tried again.
-- Called by: _try_fill_slots.
-- Locks: slots; see _give_slot. The caller has the key.
create or replace function pgflowd._fill_slots(limit_key text)
returns boolean language plpgsql set search_path = '', pg_temp
set jit = off set enable_sort = off set enable_bitmapscan = off as $$
declare
  taken int;
  most int;
begin
  select counted.taken into taken
    from pgflowd._count_slots(array[_fill_slots.limit_key]) as counted;
  loop
    select option.limit_slots into most
      from pgflowd._next_waiter(_fill_slots.limit_key) as wait
      join pgflowd.step_options as option
        on option.flow_slug = wait.flow_slug and option.step_slug = wait.step_slug;
    exit when not found or taken >= coalesce(most, 0);
    if not pgflowd._give_slot(_fill_slots.limit_key, most) then
      return false;
    end if;
    taken := taken + 1;
  end loop;
  delete from pgflowd.slots as slot
   where slot.limit_key = _fill_slots.limit_key and slot.free_at is not null;
  return true;
end $$;
