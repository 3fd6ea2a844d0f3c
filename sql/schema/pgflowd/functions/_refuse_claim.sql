-- _refuse_claim(flow_slug, worker_id): raises PF002 for the one of the two that is unknown.
-- Called by: claim.   Locks: nothing.
create or replace function pgflowd._refuse_claim(flow_slug text, worker_id uuid)
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  perform pgflowd._require_flow(_refuse_claim.flow_slug);
  raise exception 'there is no worker %', _refuse_claim.worker_id using errcode = 'PF002',
    hint = 'a worker adds itself to pgflow.workers before it claims';
end $$;
