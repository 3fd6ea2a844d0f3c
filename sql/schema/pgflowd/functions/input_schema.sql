-- input_schema(name): the JSON Schema of what runs of this name take; null if the code does not say, or
-- for an unknown flow. Security definer, since whoever starts may read no table.
-- Called by: commands.   Locks: nothing.
create or replace function pgflowd.input_schema(name text)
returns jsonb language sql stable security definer set search_path = '', pg_temp as $$
  select known.input_schema from pgflowd.flow_options as known
   where known.flow_slug = pgflowd.current_flow(input_schema.name);
$$;
