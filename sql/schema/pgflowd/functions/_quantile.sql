-- _quantile(histogram, share): the time within which this share of a histogram of `minutes` lies, as far
-- as its bounds tell: between two of them it counts evenly, and beyond the last it is the last. Null for
-- an empty one.
-- Called by: flow_stats.   Locks: nothing.
create or replace function pgflowd._quantile(histogram bigint[], share float8)
returns float8 language plpgsql immutable set search_path = '', pg_temp as $$
declare
  bounds constant float8[] := pgflowd._time_bounds();
  wanted constant float8 := share * (select sum(one) from unnest(histogram) as one);
  below bigint := 0;
begin
  if coalesce(wanted, 0) = 0 then
    return null;
  end if;
  for i in 1 .. cardinality(bounds) loop
    if below + histogram[i] >= wanted then
      return coalesce(bounds[i - 1], 0)
        + (bounds[i] - coalesce(bounds[i - 1], 0)) * (wanted - below) / histogram[i];
    end if;
    below := below + histogram[i];
  end loop;
  return bounds[cardinality(bounds)];
end $$;
