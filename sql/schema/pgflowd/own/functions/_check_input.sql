-- _check_input(flow_slug, input): raises as a start would if the flow has a root map that does not take
-- this input.
-- Called by: start.   Locks: nothing.
create or replace function pgflowd._check_input(flow_slug text, input jsonb)
returns void language plpgsql stable set search_path = '' as $$
begin
  if exists (select from pgflow.steps as step
              where step.flow_slug = _check_input.flow_slug and step.deps_count = 0
                and step.step_type = 'map') then
    perform pgflow._check_map_input(_check_input.flow_slug, _check_input.input);
  end if;
end $$;
