-- served_versions(): of each name that has versions the flows that daemons serve: the current one, and
-- those with open runs, oldest first.
-- Called by: the sweeper.   Locks: nothing.
create or replace function pgflowd.served_versions()
returns table (name text, flow_slugs text[])
language sql stable set search_path = '', pg_temp as $$
  select known.name, array_agg(known.flow_slug order by known.version)
    from pgflowd.versions as known
   where known.is_current or pgflowd._has_open_work(known.flow_slug)
   group by known.name
   order by known.name;
$$;
