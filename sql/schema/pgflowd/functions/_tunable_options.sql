-- _tunable_options(options): those options of a flow or step of a shape that may be tuned in the
-- database, each with its number or text; of a limit the number of places. Unset ones are left out.
-- Called by: _note_deployed, compare_options, set_option.   Locks: nothing.
create or replace function pgflowd._tunable_options(options jsonb)
returns jsonb language sql immutable set search_path = '', pg_temp as $$
  select jsonb_strip_nulls(jsonb_build_object(
    'maxAttempts', options -> 'maxAttempts', 'baseDelay', options -> 'baseDelay',
    'timeout', options -> 'timeout', 'startDelay', options -> 'startDelay',
    'limit', options #> '{limit,slots}', 'crashLimit', options -> 'crashLimit',
    'onCrashLimit', options -> 'onCrashLimit'));
$$;
