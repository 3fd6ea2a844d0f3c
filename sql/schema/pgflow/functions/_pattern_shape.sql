-- _pattern_shape(pattern): returns a pattern as a shape has it, so that "none" and "null" differ.
-- Called by: _get_flow_shape.   Locks: nothing.
create or replace function pgflow._pattern_shape(pattern jsonb)
returns jsonb language sql immutable parallel safe
return case when pattern is null then '{"defined": false}'::jsonb
              else jsonb_build_object('defined', true, 'value', pattern) end;
