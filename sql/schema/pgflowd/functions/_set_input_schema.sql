-- _set_input_schema(flow_slug, shape): the JSON Schema of what runs take becomes that of this shape, or none.
-- Called by: _define.   Locks: what it changes; the caller has the flow's definition.
create or replace function pgflowd._set_input_schema(flow_slug text, shape jsonb)
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  wanted constant jsonb := nullif(_set_input_schema.shape -> 'inputSchema', 'null');
begin
  if wanted is null then
    update pgflowd.flow_options as known set input_schema = null
     where known.flow_slug = _set_input_schema.flow_slug and known.input_schema is not null;
  else
    insert into pgflowd.flow_options as known (flow_slug, input_schema)
    values (_set_input_schema.flow_slug, wanted)
    on conflict on constraint flow_options_pkey do update
       set input_schema = excluded.input_schema
     where known.input_schema is distinct from excluded.input_schema;
  end if;
end $$;
