-- require_schema(version): PF032 unless this schema serves the clients of a pgflowd whose own schema has
-- this version: it must be that one or a newer one, and not so new that a call of theirs has changed,
-- which `oldest` tells. The hint names what to upgrade.
-- Security definer, since a role which may read no table asks as well, once for each pool of connections.
-- Called by: clients.   Locks: nothing.
create or replace function pgflowd.require_schema(version int)
returns void language plpgsql stable security definer set search_path = '', pg_temp as $$
declare
  oldest constant int := 48;
  found int;
begin
  select max(one.version) into found from pgflowd.schema_history as one where one.name <> 'functions';
  if found < require_schema.version then
    raise exception 'the database is at schema version %, and this pgflowd needs %',
                    found, require_schema.version
      using errcode = 'PF032', hint = 'upgrade the database: run `pgflowd db migrate`';
  elsif require_schema.version < oldest then
    raise exception 'the database is at schema version %, which serves clients of version % and later, and this pgflowd is of %',
                    found, oldest, require_schema.version
      using errcode = 'PF032', hint = 'upgrade pgflowd';
  end if;
end $$;
