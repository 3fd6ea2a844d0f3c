-- _lock_definition(flow_slug): locks the definition of a flow to the end of the transaction, whether there
-- is the flow or not; that of a name is locked before those of its versions. Slugs that differ only in case
-- share it. Not the flow's row: each start holds a lock of that. Nor the advisory lock that upstream's
-- functions take: whoever defines a flow in our core, of whatever runtime, comes through these functions.
-- Called by: _define, delete_flow, deploy_version, pause_flow, pgflow.add_step, pgflow.create_flow,
-- pgflow.delete_flow_and_data, pgflow.ensure_flow_compiled, prune_versions, rollback_version, set_option;
-- workers.
-- Locks: the definition (_lock_name).
create or replace function pgflowd._lock_definition(flow_slug text)
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  perform pgflowd._lock_name('flow', lower(_lock_definition.flow_slug collate "C"), true);
end $$;
