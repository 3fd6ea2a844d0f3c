-- prune_versions(name, actor): deletes the versions that are not current and of which no run is left,
-- and returns their flows. The first one stays: its flow has the name itself, which workers of other
-- runtimes start. So does one that undoes runs of a version that there is. PF002 for an unknown flow.
-- Called by: `pgflowd flows prune-versions`; operators.   Locks: the definition of the name; see
-- pgflow.delete_flow_and_data.
create or replace function pgflowd.prune_versions(name text, actor text default null)
returns text[] language plpgsql set search_path = '', pg_temp as $$
declare
  old record;
  gone text[] := '{}';
begin
  perform pgflowd._lock_definition(prune_versions.name);
  perform pgflowd._require_flow(prune_versions.name);
  for old in
    select known.flow_slug from pgflowd.versions as known
     where known.name = prune_versions.name and not known.is_current and known.version > 1
     order by known.version
  loop
    perform from pgflow.flows as flow where flow.flow_slug = old.flow_slug for no key update;  -- no start meanwhile
    if not exists (select from pgflow.runs as run where run.flow_slug = old.flow_slug)
       and not exists (select from pgflowd.runs as run where run.flow_slug = old.flow_slug)
       and not exists (
         select from unnest(pgflowd.flows_of(substr(prune_versions.name, 1 + length('undo_')))) as undone
          where starts_with(prune_versions.name, 'undo_') and pgflowd._has_undo(undone)
            and pgflowd._undo_flow(undone) = old.flow_slug) then
      perform pgflow.delete_flow_and_data(old.flow_slug);
      gone := gone || old.flow_slug;
    end if;
  end loop;
  if gone <> '{}' then
    perform pgflowd._record_action('prune_versions', prune_versions.actor, flow_slug => prune_versions.name,
                                   data => jsonb_build_object('flows', gone));
  end if;
  return gone;
end $$;
