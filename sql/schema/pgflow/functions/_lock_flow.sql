-- _lock_flow(flow_slug): locks a flow's definition to the end of the transaction. Workers of
-- other runtimes take the same keys: since 0.17 the slug in lower case, before that the slug as
-- it is. Slugs that differ only in case share the first key.
-- Called by: add_step, create_flow, delete_flow_and_data, ensure_flow_compiled.
-- Locks: the advisory keys only.
create or replace function pgflow._lock_flow(flow_slug text)
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  perform pg_advisory_xact_lock(1, hashtext(lower(_lock_flow.flow_slug collate "C")));
  if _lock_flow.flow_slug <> lower(_lock_flow.flow_slug collate "C") then
    perform pg_advisory_xact_lock(1, hashtext(_lock_flow.flow_slug));
  end if;
end $$;
