-- track_worker_function(function_name, start_mode): registers an HTTP function. For a known one
-- it sets how it is started, and keeps when it was last called.
-- Called by: workers of other runtimes.   Locks: the function's row.
create or replace function pgflow.track_worker_function(
  function_name text, start_mode text default 'http')
returns void language sql set search_path = '', pg_temp as $$
  insert into pgflow.worker_functions as known (function_name, start_mode, created_at, updated_at)
  values (track_worker_function.function_name, track_worker_function.start_mode,
          clock_timestamp(), clock_timestamp())
      on conflict (function_name) do update
         set updated_at = clock_timestamp(), start_mode = excluded.start_mode;
$$;
