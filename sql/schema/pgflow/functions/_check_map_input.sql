-- _check_map_input(flow_slug, input): raises unless the input is an array. Only flows with a root
-- map need one.
-- Called by: start_flows.   Locks: nothing.
create or replace function pgflow._check_map_input(flow_slug text, input jsonb)
returns void language plpgsql immutable set search_path = '', pg_temp as $$
begin
  if input is null then
    raise exception 'Flow % has root map steps but input is NULL', flow_slug;
  elsif jsonb_typeof(input) <> 'array' then
    raise exception 'Flow % has root map steps but input is not an array (got %)',
                    flow_slug, jsonb_typeof(input);
  end if;
end $$;
