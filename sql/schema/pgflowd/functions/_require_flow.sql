-- _require_flow(flow_slug): raises PF002 if there is no such flow.
-- Called by: delete_flow, deploy_version, open_tasks, pause_flow, prune_versions, _refuse_claim,
-- resume_flow, rollback_version, set_option, set_schedule.   Locks: nothing.
create or replace function pgflowd._require_flow(flow_slug text)
returns void language plpgsql stable set search_path = '', pg_temp as $$
begin
  if not exists (select from pgflow.flows as flow
                  where flow.flow_slug = _require_flow.flow_slug) then
    raise exception 'there is no flow %', quote_literal(_require_flow.flow_slug)
      using errcode = 'PF002', hint = 'deploy it with `pgflowd flows deploy`';
  end if;
end $$;
