-- _check_map_input(flow_slug, input): raises unless the input is an array of not too many elements.
-- Only flows with a root map need one.
-- Called by: pgflowd._check_input, _start_runs.   Locks: nothing.
create or replace function pgflow._check_map_input(flow_slug text, input jsonb)
returns void language plpgsql stable set search_path = '', pg_temp as $$
begin
  if input is null then
    raise exception 'Flow % has root map steps but input is NULL', flow_slug;
  elsif jsonb_typeof(input) <> 'array' then
    raise exception 'Flow % has root map steps but input is not an array (got %)',
                    flow_slug, jsonb_typeof(input);
  elsif jsonb_array_length(input) > 1000 then
    perform pgflow._check_map_length(jsonb_array_length(input), 'the input of flow ' || flow_slug);
  end if;
end $$;
