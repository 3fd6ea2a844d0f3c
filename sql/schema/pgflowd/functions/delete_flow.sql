-- delete_flow(flow_slug, reason, actor): deletes a flow, or all its versions, with queues, runs and
-- their history, as pgflow.delete_flow_and_data does. PF023 for a version that is current. What people
-- did to its runs stays (actions). PF002 for an unknown flow.
-- Called by: `pgflowd flows delete`; operators.   Locks: see pgflow.delete_flow_and_data.
create or replace function pgflowd.delete_flow(
  flow_slug text, reason text default null, actor text default null)
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  perform pgflowd._lock_definition(delete_flow.flow_slug);
  perform pgflowd._require_flow(delete_flow.flow_slug);
  if exists (select from pgflowd.versions as known
              where known.flow_slug = delete_flow.flow_slug and known.is_current
                and known.name <> delete_flow.flow_slug) then
    raise exception 'flow % is a version to which starts go', delete_flow.flow_slug
      using errcode = 'PF023', hint = 'make another one current with `pgflowd flows rollback`';
  end if;
  perform pgflow.delete_flow_and_data(one)
     from unnest(pgflowd.flows_of(delete_flow.flow_slug)) as one;
  perform pgflowd._record_action('delete_flow', delete_flow.actor, flow_slug => delete_flow.flow_slug,
                                 reason => delete_flow.reason);
end $$;
