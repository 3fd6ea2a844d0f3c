-- _next_waiter(limit_key, after): of those who wait for a place of this limit the first behind this number of
-- which the flow is not paused; runs that are paused have left the line. No row if there is none. It goes from
-- flow to flow, and looks at one wait of each: so of a paused flow any number may wait.
-- Called by: _count_slots, _fill_slots, _give_slot, _try_fill_slots.   Locks: nothing.
create or replace function pgflowd._next_waiter(limit_key text, after bigint default 0)
returns setof pgflowd.waits language plpgsql stable rows 1 set search_path = '', pg_temp
  set jit = off set enable_sort = off set enable_bitmapscan = off as $$
begin
  return query
    with recursive flow as (
      (select one.flow_slug as slug from pgflowd.waits as one
        where one.kind = 'limit' and not one.is_paused and one.name = _next_waiter.limit_key
        order by one.flow_slug limit 1)
      union all
      select (select one.flow_slug from pgflowd.waits as one
               where one.kind = 'limit' and not one.is_paused and one.name = _next_waiter.limit_key
                 and one.flow_slug > flow.slug
               order by one.flow_slug limit 1)
        from flow where flow.slug is not null
    )
    select wait.*
      from flow
     cross join lateral (
       select one.* from pgflowd.waits as one
        where one.kind = 'limit' and not one.is_paused and one.name = _next_waiter.limit_key
          and one.flow_slug = flow.slug and one.nr > _next_waiter.after
        order by one.nr limit 1) as wait
     where not exists (select from pgflowd.paused_flows as paused
                        where paused.flow_slug = flow.slug offset 0)
     order by wait.nr limit 1;
end $$;
