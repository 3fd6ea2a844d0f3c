-- active_runs(flow_slug): returns how many runs of a flow have not ended (see _open_runs).
-- Called by: `pgflowd flows delete`.   Locks: nothing.
create or replace function pgflowd.active_runs(flow_slug text)
returns bigint language sql stable set search_path = '' as $$
  select count(*) from pgflowd._open_runs(active_runs.flow_slug);
$$;
