-- versions_of(name, shape): the versions of this name, oldest first, and whether each has this
-- shape. No rows for a flow whose shape has never changed.
-- Called by: workers, commands.   Locks: nothing.
create or replace function pgflowd.versions_of(name text, shape jsonb default null)
returns table (version int, flow_slug text, is_current boolean, deployed_at timestamptz,
               deployed_by text, code text, has_shape boolean)
language sql stable set search_path = '', pg_temp as $$
  select known.version, known.flow_slug, known.is_current, known.deployed_at, known.deployed_by,
         known.code,
         coalesce(known.fingerprint = pgflowd._shape_fingerprint(versions_of.shape), false)
    from pgflowd.versions as known
   where known.name = versions_of.name
   order by known.version;
$$;
