-- flow_buckets(flow_slug, since, buckets): returns how many runs of flows, or of one, ended well and how many
-- failed within this time, in so many pieces of it, at most 1,440; 0 is the oldest. Pieces in which none
-- ended are left out. It reads `minutes`, as flow_stats does: what is older than two days is known by
-- the hour.
-- Called by: `pgflowd flows stats`.   Locks: nothing.
create or replace function pgflowd.flow_buckets(
  flow_slug text default null, since interval default interval '1 hour', buckets int default 12)
returns table (flow_slug text, bucket int, ok bigint, failed bigint)
language sql stable set search_path = '', pg_temp as $$
  select one.flow_slug, placed.bucket, sum(one.completed)::bigint, sum(one.failed)::bigint
    from (select least(greatest(flow_buckets.buckets, 1), 1440) as most) as wanted
   cross join pgflow.flows as flow
   cross join (values (false), (true)) as length (is_hour)
   cross join lateral (
     select known.flow_slug, known.at, known.completed, known.failed from pgflowd.minutes as known
      where known.flow_slug = flow.flow_slug and known.is_hour = length.is_hour
        and known.at > now() - flow_buckets.since and known.step_slug = '' offset 0) as one
   cross join lateral (
     select least(floor(extract(epoch from one.at - (now() - flow_buckets.since)) * wanted.most
                        / extract(epoch from flow_buckets.since))::int, wanted.most - 1) as bucket
     offset 0) as placed
   where flow_buckets.flow_slug is null or flow.flow_slug = any (pgflowd.flows_of(flow_buckets.flow_slug))
   group by one.flow_slug, placed.bucket
   order by one.flow_slug, placed.bucket;
$$;
