-- ensure_workers(): calls the HTTP functions that should be running and are not. In a local
-- database all enabled ones, at once. Elsewhere those without a live worker that were not called
-- within their debounce; address and secret of the project come from the vault, and without both
-- none is called. Returns the called functions.
-- Called by: setup_ensure_workers_cron; cron.   Locks: the functions' rows.
create or replace function pgflow.ensure_workers()
returns table (function_name text, invoked boolean, request_id bigint)
language plpgsql set search_path = '', pg_temp as $$
#variable_conflict use_column
declare
  local constant boolean := pgflow.is_local();
  base_url text := 'http://kong:8000/functions/v1/';
  call_headers jsonb := '{}';
begin
  perform pgflow._require_trusted('net');
  if not local then
    base_url := 'https://' || pgflow._vault_secret('supabase_project_id') || '.supabase.co/functions/v1/';
    call_headers := jsonb_build_object(
      'Content-Type', 'application/json',
      'Authorization', 'Bearer ' || coalesce(pgflow._vault_secret('pgflow_auth_secret'),
                                             pgflow._vault_secret('supabase_service_role_key')));
    if base_url is null or call_headers ->> 'Authorization' is null then
      return;
    end if;
  end if;

  return query
    with due as (
      select known.function_name
        from pgflow.worker_functions as known
       where known.enabled and known.start_mode = 'http'
         and (local
              or ((known.last_invoked_at is null
                   or known.last_invoked_at < clock_timestamp() - known.debounce)
                  and not exists (
                    select from pgflow.workers as worker
                     where worker.function_name = known.function_name
                       and worker.stopped_at is null and worker.deprecated_at is null
                       and worker.last_heartbeat_at > clock_timestamp() - known.debounce)))
       order by known.function_name for no key update
    ), stamped as (
      update pgflow.worker_functions as known set last_invoked_at = clock_timestamp()
        from due where known.function_name = due.function_name
      returning known.function_name
    )
    select stamped.function_name, true,
           net.http_post(url => base_url || stamped.function_name, headers => call_headers,
                         body => '{}'::jsonb)
      from stamped;
end $$;
