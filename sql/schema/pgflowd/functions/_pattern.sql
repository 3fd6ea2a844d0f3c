-- _pattern(pattern): returns a condition's pattern as a shape has it; null, in SQL or JSON, is
-- none.
-- Called by: flow_shape.   Locks: nothing.
create or replace function pgflowd._pattern(pattern jsonb)
returns jsonb language sql immutable set search_path = '', pg_temp as $$
  select case when pattern is null or pattern = 'null' then '{"defined": false}'
              else jsonb_build_object('defined', true, 'value', pattern) end;
$$;
