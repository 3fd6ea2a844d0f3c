-- current_flow(name): the flow in which runs of this name are started: its current version, or the flow
-- itself where its shape has never changed. The flow of a version is meant exactly. Security definer,
-- since whoever starts may read no table.
-- Called by: _define, deploy_version, input_schema, _start, start_child, start_runs; commands.   Locks:
-- nothing.
create or replace function pgflowd.current_flow(name text)
returns text language plpgsql stable security definer set search_path = '', pg_temp as $$
declare
  found_slug text;
begin
  select known.flow_slug into found_slug from pgflowd.versions as known
   where known.name = current_flow.name and known.is_current;
  return coalesce(found_slug, current_flow.name);
end $$;
