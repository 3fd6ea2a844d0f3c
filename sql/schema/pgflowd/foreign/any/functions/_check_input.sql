-- _check_input(flow_slug, input): raises as a start would if the flow has a root map that does not take
-- this input. A release without maps has no such column.
-- Called by: _start.   Locks: nothing.
create or replace function pgflowd._check_input(flow_slug text, input jsonb)
returns void language plpgsql stable set search_path = '', pg_temp as $$
begin
  if coalesce(jsonb_typeof(_check_input.input), 'nothing') <> 'array'
     and exists (select from pgflow.steps as step
                  where step.flow_slug = _check_input.flow_slug and step.deps_count = 0
                    and to_jsonb(step) ->> 'step_type' = 'map') then
    raise exception 'Flow % has root map steps but input is not an array (got %)',
      _check_input.flow_slug, coalesce(jsonb_typeof(_check_input.input), 'nothing');
  end if;
end $$;
