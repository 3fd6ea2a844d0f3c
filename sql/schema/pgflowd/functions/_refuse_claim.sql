-- _refuse_claim(flow_slug, worker_id): raises PF030 while functions of schema pgflow are not ours
-- (tell_core), and else PF002 for the one of the two that is unknown.
-- Called by: claim.   Locks: nothing.
create or replace function pgflowd._refuse_claim(flow_slug text, worker_id uuid)
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  functions text;
begin
  select string_agg(one, ', ') into functions
    from pgflowd.settings as kept cross join lateral jsonb_array_elements_text(kept.value) as one
   where kept.name = 'replaced_functions';
  if functions is not null then
    raise exception 'the functions of schema pgflow are not this pgflowd''s: %', left(functions, 500)
      using errcode = 'PF030', hint = 'run `pgflowd db migrate --adopt`';
  end if;
  perform pgflowd._require_flow(_refuse_claim.flow_slug);
  raise exception 'there is no worker %', _refuse_claim.worker_id using errcode = 'PF002',
    hint = 'a worker adds itself to pgflow.workers before it claims';
end $$;
