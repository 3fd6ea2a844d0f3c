-- _lock_starts(flow_slug, to_delete): keeps starts of runs and the deletion of their flow apart.
-- Starts share the lock, a deletion takes it alone; each waits for the other's transaction, so
-- neither sees the other's work half done. The key cannot be a slug's: no slug has a space.
-- Called by: delete_flow_and_data, start_flows.   Locks: the advisory keys only.
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
