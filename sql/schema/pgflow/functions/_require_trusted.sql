-- _require_trusted(schema_name): raises if this schema of the platform, or what is called there,
-- belongs to a role that is not trusted (_untrusted_owner).
-- Called by: cleanup_ensure_workers_logs, ensure_workers, _schedule, _vault_secret.
-- Locks: nothing.
create or replace function pgflow._require_trusted(schema_name text)
returns void language plpgsql stable set search_path = '', pg_temp as $$
declare
  owner constant text := pgflow._untrusted_owner(schema_name);
begin
  if owner is not null then
    raise exception 'schema %, or what is called there, belongs to role %, which is not trusted',
                    schema_name, owner
      using errcode = 'insufficient_privilege',
            hint = format('Give it to a superuser, or run pgflowd db migrate as %s.', owner);
  end if;
end $$;
