-- flow_exists(p_flow_slug): whether there is such a flow.
-- Called by: ensure_flow_compiled, start_tasks; workers of other runtimes.
-- Locks: nothing.
create or replace function pgflow.flow_exists(p_flow_slug text)
returns boolean language sql stable set search_path = '', pg_temp as $$
  select exists (select from pgflow.flows as flow where flow.flow_slug = p_flow_slug);
$$;
