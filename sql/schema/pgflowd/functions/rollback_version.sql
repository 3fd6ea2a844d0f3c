-- rollback_version(name, actor): makes the version before the current one current again, and returns its
-- flow. Runs under way stay where they are. PF002 for an unknown flow, or if there is no version before.
-- Called by: `pgflowd flows rollback`; operators.   Locks: the definition of the name.
create or replace function pgflowd.rollback_version(name text, actor text default null)
returns text language plpgsql set search_path = '', pg_temp as $$
declare
  before pgflowd.versions;
begin
  perform pgflowd._lock_definition(rollback_version.name);
  perform pgflowd._require_flow(rollback_version.name);
  select known.* into before
    from pgflowd.versions as known
    join pgflowd.versions as current on current.name = known.name and current.is_current
   where known.name = rollback_version.name and known.version < current.version
   order by known.version desc limit 1;
  if not found then
    raise exception 'flow % has no version before the current one', rollback_version.name
      using errcode = 'PF002', hint = format('`pgflowd flows show %s` lists its versions', rollback_version.name);
  end if;
  perform pgflowd._record_action(
    'rollback_version', rollback_version.actor, flow_slug => before.name,
    data => jsonb_build_object('version', before.version,
                               'before', pgflowd._set_current(before.name, before.version)));
  return before.flow_slug;
end $$;
