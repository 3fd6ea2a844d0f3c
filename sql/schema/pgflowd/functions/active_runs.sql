-- active_runs(flow_slug): returns how many runs of a flow have not ended.
-- Called by: `pgflowd flows delete`.   Locks: nothing.
create or replace function pgflowd.active_runs(flow_slug text)
returns bigint language sql stable set search_path = '' as $$
  select count(*) from pgflow.runs as run
   where run.flow_slug = active_runs.flow_slug and run.status = 'started';
$$;
