-- flow_stats(flow_slug, since): returns what workers did in flows, or in one, within this time, by step,
-- and of the runs as a whole (step ''): how many ended and how, and how long half and 95 of a hundred
-- ran, and had waited. It reads `minutes`, so it costs the same however many runs there are. Of more
-- than two days it has whole hours.
-- Called by: `pgflowd flows stats`.   Locks: nothing.
create or replace function pgflowd.flow_stats(
  flow_slug text default null, since interval default interval '1 hour')
returns table (flow_slug text, step_slug text, completed bigint, failed bigint, timed_out bigint,
               crashed bigint, ran_p50_s float8, ran_p95_s float8, waited_p50_s float8,
               waited_p95_s float8)
language sql stable set search_path = '', pg_temp as $$
  with told as materialized (
    select one.*
      from pgflow.flows as flow
     cross join (values (false, 'minute'), (true, 'hour')) as length (is_hour, name)
      join pgflowd.minutes as one
        on one.flow_slug = flow.flow_slug and one.is_hour = length.is_hour
       and one.at > date_trunc(length.name, now() - flow_stats.since)
     where flow_stats.flow_slug is null
        or flow.flow_slug = any (pgflowd.flows_of(flow_stats.flow_slug))
  ), counted as (
    select told.flow_slug, told.step_slug, sum(told.completed)::bigint as completed,
           sum(told.failed)::bigint as failed, sum(told.timed_out)::bigint as timed_out,
           sum(told.crashed)::bigint as crashed
      from told group by told.flow_slug, told.step_slug
  ), places as (
    select told.flow_slug, told.step_slug, place, sum(both_of.ran)::bigint as ran,
           sum(both_of.waited)::bigint as waited
      from told
     cross join lateral unnest(told.ran, told.waited) with ordinality
             as both_of (ran, waited, place)
     group by told.flow_slug, told.step_slug, place
  ), times as (
    select places.flow_slug, places.step_slug,
           array_agg(coalesce(places.ran, 0) order by place) as ran,
           array_agg(coalesce(places.waited, 0) order by place) as waited
      from places group by places.flow_slug, places.step_slug)
  select counted.flow_slug, counted.step_slug, counted.completed, counted.failed,
         counted.timed_out, counted.crashed,
         pgflowd._quantile(times.ran, 0.5), pgflowd._quantile(times.ran, 0.95),
         pgflowd._quantile(times.waited, 0.5), pgflowd._quantile(times.waited, 0.95)
    from counted
    left join times on times.flow_slug = counted.flow_slug and times.step_slug = counted.step_slug
    left join pgflow.steps as step
      on step.flow_slug = counted.flow_slug and step.step_slug = counted.step_slug
   order by counted.flow_slug, step.step_index nulls first, counted.step_slug;
$$;
