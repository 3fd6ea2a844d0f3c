-- _next_waiter(limit_key): of those who wait for a place of this limit the first that may begin: neither
-- its run nor its flow is paused. No row if there is none.
-- Called by: _count_slots, _fill_slots.   Locks: nothing.
create or replace function pgflowd._next_waiter(limit_key text)
returns setof pgflowd.waits language plpgsql stable rows 1 set search_path = '', pg_temp set jit = off
  set enable_sort = off set enable_bitmapscan = off as $$
begin
  return query
    select wait.*
      from (select one.* from pgflowd.waits as one
             where one.kind = 'limit' and one.name = _next_waiter.limit_key
               and one.flow_slug <> all (array(select paused.flow_slug from pgflowd.paused_flows as paused))
             order by one.nr) as wait
     cross join lateral (
       select from pgflow.runs as one where one.run_id = wait.run_id and not one.is_paused offset 0) as run
     limit 1;
end $$;
