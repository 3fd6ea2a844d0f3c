-- count_runs(flow_slug, statuses, since, until, labels, search, with_undos, max_found, max_seen, input, key):
-- returns how many runs fit, as search_runs understands these, at most `max_found`, and how many it has examined
-- for that. `searched_to`: it has counted no older ones; null if it has counted all.
-- Called by: overview_counts; commands.   Locks: nothing.
create or replace function pgflowd.count_runs(
  flow_slug text default null, statuses text[] default null, since timestamptz default null,
  until timestamptz default null, labels jsonb default null, search text default null,
  with_undos boolean default false, max_found int default 1001, max_seen int default 20000,
  input jsonb default null, key text default null)
returns table (found bigint, seen bigint, searched_to timestamptz)
language sql stable set search_path = '', pg_temp as $$
  select count(*) filter (where not one.is_behind), min(one.seen), min(one.end_at)
    from pgflowd._found_runs(
           count_runs.flow_slug, count_runs.statuses, count_runs.since, count_runs.until,
           count_runs.labels, count_runs.search, count_runs.with_undos, count_runs.input,
           count_runs.key, null, null,
           count_runs.max_found, count_runs.max_seen) as one;
$$;
