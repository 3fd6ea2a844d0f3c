-- _lock_definition(flow_slug): locks the definition of a flow to the end of the transaction; that of a
-- name is locked before those of its versions. The key is that of pgflow._lock_flow, in which a foreign
-- core takes its part.
-- Called by: _define, delete_flow, deploy_version, pause_flow, prune_versions, rollback_version,
-- set_option.
-- Locks: the advisory key only.
create or replace function pgflowd._lock_definition(flow_slug text)
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  perform pg_advisory_xact_lock(1, hashtext(lower(_lock_definition.flow_slug collate "C")));
end $$;
