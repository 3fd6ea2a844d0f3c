-- _lock_flow(flow_slug): one definition of a flow at a time, to the end of the transaction.
-- The keys are shared with the workers of other runtimes: those since 0.17 take the slug in
-- lower case, those before as it is. Slugs equal but for case meet in the first.
-- Called by: create_flow, add_step, ensure_flow_compiled, delete_flow_and_data.
create or replace function pgflow._lock_flow(flow_slug text)
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  perform pg_advisory_xact_lock(1, hashtext(lower(_lock_flow.flow_slug)));
  if _lock_flow.flow_slug <> lower(_lock_flow.flow_slug) then
    perform pg_advisory_xact_lock(1, hashtext(_lock_flow.flow_slug));
  end if;
end $$;
