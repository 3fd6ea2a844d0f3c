-- _explain(run_id, error_message): note why a run failed; upstream's runs have no column for it.
-- Called by: cancel, retry.   Locks: nothing.
create or replace function pgflowd._explain(run_id uuid, error_message text)
returns void language plpgsql set search_path = '' as $$
begin
  return;
end $$;
