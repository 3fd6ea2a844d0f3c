-- _refuse_claim(flow_slug, worker_id): raises PF002 for the one of the two that is unknown.
-- Called by: claim.   Locks: nothing.
create or replace function pgflowd._refuse_claim(flow_slug text, worker_id uuid)
returns void language plpgsql set search_path = '' as $$
begin
  if not exists (select from pgflow.flows as flow
                  where flow.flow_slug = _refuse_claim.flow_slug) then
    raise exception 'there is no flow %', quote_literal(_refuse_claim.flow_slug)
      using errcode = 'PF002', hint = 'deploy it with `pgflowd flows deploy`';
  end if;
  raise exception 'there is no worker %', _refuse_claim.worker_id using errcode = 'PF002',
    hint = 'a worker adds itself to pgflow.workers before it claims';
end $$;
