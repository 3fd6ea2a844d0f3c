-- served_versions(): of each name that has versions the flows that daemons serve: the current one, and
-- those with open runs, oldest first. `open_runs`: how many each of these has; null for the current one.
-- Called by: the sweeper.   Locks: nothing.
create or replace function pgflowd.served_versions()
returns table (name text, flow_slugs text[], open_runs bigint[])
language sql stable set search_path = '', pg_temp as $$
  select known.name, array_agg(known.flow_slug order by known.version),
         array_agg(case when not known.is_current then pgflowd._count_open_runs(known.flow_slug) end
                   order by known.version)
    from pgflowd.versions as known
   where known.is_current or pgflowd._has_open_work(known.flow_slug)
   group by known.name
   order by known.name;
$$;
