-- _lock_flow(flow_slug): one definition of a flow at a time, to the end of the transaction.
-- The key is shared with the workers of other runtimes; slugs equal but for case meet, too.
-- Called by: create_flow, add_step, ensure_flow_compiled, delete_flow_and_data.
create or replace function pgflow._lock_flow(flow_slug text)
returns void language sql set search_path = '' as $$
  select pg_advisory_xact_lock(1, hashtext(lower(_lock_flow.flow_slug)));
$$;
