-- _untrusted_owner(schema_name): returns a role that owns this schema of the platform, or what is
-- called there, and is not trusted; null if there is none (see pgflowd._untrusted_owner).
-- Security definer, for callers that may use schema pgflow only.
-- Called by: _has_realtime, _require_trusted.   Locks: nothing.
create or replace function pgflow._untrusted_owner(schema_name text)
returns text language plpgsql stable security definer set search_path = '', pg_temp as $$
begin
  return pgflowd._untrusted_owner(schema_name);
end $$;
