-- _added(one, other): two histograms of `minutes` together; null is an empty one.
-- Called by: add_minute, roll_up_minutes.   Locks: nothing.
create or replace function pgflowd._added(one bigint[], other bigint[])
returns bigint[] language sql immutable
return case when one is null then other
              when other is null then one
              else array(select coalesce(a, 0) + coalesce(b, 0)
                           from unnest(one, other) with ordinality as both_of (a, b, place)
                          order by place) end;
