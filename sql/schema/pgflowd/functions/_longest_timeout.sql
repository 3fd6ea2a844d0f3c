-- _longest_timeout(flow_slug): returns the longest timeout of a flow's steps, in seconds.
-- Called by: claim, _handle_unstarted.   Locks: nothing.
create or replace function pgflowd._longest_timeout(flow_slug text)
returns int language plpgsql stable set search_path = '', pg_temp as $$
begin
  return (
    select max(coalesce(step.opt_timeout, flow.opt_timeout))
      from pgflow.flows as flow
      left join pgflow.steps as step on step.flow_slug = flow.flow_slug
     where flow.flow_slug = _longest_timeout.flow_slug);
end $$;
