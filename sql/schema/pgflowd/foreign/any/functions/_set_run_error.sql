-- _set_run_error(run_id, error_message): does nothing; on a foreign core runs have no column for an
-- error.
-- Called by: _cancel, retry.   Locks: nothing.
create or replace function pgflowd._set_run_error(run_id uuid, error_message text)
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  return;
end $$;
