-- delete_flow(flow_slug, reason, actor): deletes a flow with its queue, its runs and their history, as
-- pgflow.delete_flow_and_data does. What people did to its runs stays (actions). PF002 for an unknown flow.
-- Called by: `pgflowd flows delete`; operators.   Locks: see pgflow.delete_flow_and_data.
create or replace function pgflowd.delete_flow(
  flow_slug text, reason text default null, actor text default null)
returns void language plpgsql set search_path = '' as $$
begin
  perform pgflowd._require_flow(delete_flow.flow_slug);
  perform pgflow.delete_flow_and_data(delete_flow.flow_slug);
  perform pgflowd._record_action('delete_flow', delete_flow.actor, flow_slug => delete_flow.flow_slug,
                                 reason => delete_flow.reason);
end $$;
