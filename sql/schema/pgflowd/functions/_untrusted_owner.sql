-- _untrusted_owner(schema_name): returns a role that owns this schema of the platform, or what is
-- called there, and is not trusted; null if there is none. What such a role wrote would be executed
-- with the rights of our callers and owners. Trusted are superusers, and the roles that the last
-- `db migrate` recorded: its own, the owners of our schemas, and the platform's admin.
-- All functions of a name count, since PostgreSQL chooses among them.
-- Called by: platform, pgflow._untrusted_owner.   Locks: nothing.
create or replace function pgflowd._untrusted_owner(schema_name text)
returns text language plpgsql stable set search_path = '', pg_temp as $$
declare
  place constant oid := to_regnamespace(quote_ident(schema_name));
  called constant text[] := case schema_name
    when 'realtime' then '{send}'
    when 'cron' then '{schedule,unschedule,job,job_run_details}'
    when 'vault' then '{decrypted_secrets}'
    when 'net' then '{http_post}' end;
  owners constant oid[] := array(
    select namespace.nspowner from pg_catalog.pg_namespace as namespace where namespace.oid = place
     union all
    select proc.proowner from pg_catalog.pg_proc as proc
     where proc.proname = any(called) and proc.pronamespace = place
     union all
    select class.relowner from pg_catalog.pg_class as class
     where class.relname = any(called) and class.relnamespace = place);
begin
  return (
    select role.rolname from pg_catalog.pg_roles as role
     where role.oid = any(owners) and not role.rolsuper
       and not exists (select from pgflowd.settings as kept
                        where kept.name = 'trusted_roles' and kept.value ? role.rolname)
     limit 1);
end $$;
