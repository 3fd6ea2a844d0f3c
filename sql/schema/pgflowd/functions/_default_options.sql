-- _default_options(): the options of a flow whose code sets none, as create_flow gives them.
-- Called by: compare_options, _write_option.   Locks: nothing.
create or replace function pgflowd._default_options()
returns jsonb language sql immutable set search_path = '', pg_temp as $$
  select '{"maxAttempts": 3, "baseDelay": 5, "timeout": 60}'::jsonb;
$$;
