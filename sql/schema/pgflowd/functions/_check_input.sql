-- _check_input(flow_slug, input): raises as a start would if the flow has a root map that does not take
-- this input. Until the end of this transaction nobody deletes the flow, and with it a run that is
-- planned here and that the deletion does not see.
-- Called by: _start.   Locks: the flow against deletion.
create or replace function pgflowd._check_input(flow_slug text, input jsonb)
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  perform pgflow._lock_starts(_check_input.flow_slug);
  if exists (select from pgflow.steps as step
              where step.flow_slug = _check_input.flow_slug and step.deps_count = 0
                and step.step_type = 'map') then
    perform pgflow._check_map_input(_check_input.flow_slug, _check_input.input);
  end if;
end $$;
