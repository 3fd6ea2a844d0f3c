-- _is_paused(flow_slug): whether the flow is paused, so that none of its tasks may begin.
-- Security definer, for callers that may use schema pgflow only.
-- Called by: _start_tasks.   Locks: nothing.
create or replace function pgflow._is_paused(flow_slug text)
returns boolean language plpgsql stable security definer set search_path = '', pg_temp as $$
begin
  return exists (
    select from pgflowd.paused_flows as paused where paused.flow_slug = _is_paused.flow_slug);
end $$;
