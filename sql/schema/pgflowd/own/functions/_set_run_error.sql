-- _set_run_error(run_id, error_message): sets why a run failed, or (null) that it no longer has.
-- Called by: _cancel, retry.   Locks: nothing new; the caller holds the run.
create or replace function pgflowd._set_run_error(run_id uuid, error_message text)
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  update pgflow.runs as run set error_message = _set_run_error.error_message
   where run.run_id = _set_run_error.run_id;
end $$;
