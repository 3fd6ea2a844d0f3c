-- platform(): returns which schemas of the hosted platform are here, and, for one that is not used,
-- the role that owns it or what is called there, and is not trusted.
-- Called by: `pgflowd doctor`, operators.   Locks: nothing.
create or replace function pgflowd.platform()
returns table (schema_name text, owner text, untrusted_owner text)
language plpgsql stable set search_path = '', pg_temp as $$
begin
  return query
    select namespace.nspname::text, namespace.nspowner::regrole::text,
           pgflowd._untrusted_owner(namespace.nspname::text)
      from pg_catalog.pg_namespace as namespace
     where namespace.nspname in ('realtime', 'cron', 'vault', 'net')
     order by namespace.nspname;
end $$;
