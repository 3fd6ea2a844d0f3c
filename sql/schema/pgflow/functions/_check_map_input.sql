-- _check_map_input(flow_slug, input): a flow with a root map needs an array to map over.
-- Called by: start_flows.   Locks: nothing.
create or replace function pgflow._check_map_input(flow_slug text, input jsonb)
returns void language plpgsql stable set search_path = '', pg_temp as $$
begin
  if jsonb_typeof(input) = 'array'
     or not exists (select from pgflow.steps as step
                     where step.flow_slug = _check_map_input.flow_slug
                       and step.step_type = 'map' and step.deps_count = 0) then
    return;
  elsif input is null then
    raise exception 'Flow % has root map steps but input is NULL', flow_slug;
  end if;
  raise exception 'Flow % has root map steps but input is not an array (got %)',
                  flow_slug, jsonb_typeof(input);
end $$;
