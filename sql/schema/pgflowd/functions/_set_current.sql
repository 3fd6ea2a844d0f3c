-- _set_current(name, version): from now on starts by name go to this version, and daemons are told.
-- Returns the version before; null if it is current already.
-- Called by: deploy_version, rollback_version.   Locks: the rows of the name; the caller has its
-- definition.
create or replace function pgflowd._set_current(name text, version int)
returns int language plpgsql set search_path = '', pg_temp as $$
declare
  before int;
begin
  select known.version into before from pgflowd.versions as known
   where known.name = _set_current.name and known.is_current;
  if before = _set_current.version then
    return null;
  end if;
  update pgflowd.versions as known set is_current = false
   where known.name = _set_current.name and known.is_current;
  update pgflowd.versions as known set is_current = true
   where known.name = _set_current.name and known.version = _set_current.version;
  perform pg_notify('pgflowd', 'versions');
  return before;
end $$;
