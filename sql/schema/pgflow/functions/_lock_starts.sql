-- _lock_starts(flow_slug, to_delete): runs may be started while nobody deletes the flow, and it is
-- deleted while none is being started; each waits for the other's transaction, and neither finds
-- the other's work half done. The key is none that a slug may have.
-- Called by: start_flows, delete_flow_and_data.
create or replace function pgflow._lock_starts(flow_slug text, to_delete boolean default false)
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  key constant int := hashtext('starts of ' || lower(_lock_starts.flow_slug));
begin
  if to_delete then
    perform pg_advisory_xact_lock(1, key);
  else
    perform pg_advisory_xact_lock_shared(1, key);
  end if;
end $$;
