-- _json_length(value): how many members a value has, or characters; null for what has neither.
-- Called by: value_part.   Locks: nothing.
create or replace function pgflowd._json_length(value jsonb)
returns bigint language sql immutable set search_path = '', pg_temp as $$
  select case jsonb_typeof(value)
           when 'array' then jsonb_array_length(value)
           when 'object' then (select count(*) from jsonb_object_keys(value))
           when 'string' then length(value #>> '{}') end::bigint;
$$;
