-- calculate_retry_delay(base_delay, attempts_count): returns the seconds until the next attempt,
-- doubled with each one made, and at most the largest int, so that every failure can be recorded.
-- Called by: _fail_tasks.   Locks: nothing.
create or replace function pgflow.calculate_retry_delay(base_delay numeric, attempts_count int)
returns int language sql immutable parallel safe set search_path = '', pg_temp as $$
  select case when base_delay * attempts_count is not null
              then least(floor(base_delay * power(2::numeric, least(attempts_count, 1000))), 2147483647)::int end;
$$;
