-- active_runs(flow_slug): returns how many runs of a flow have not ended (see _open_runs), or are planned.
-- Called by: list_flows; `pgflowd flows delete`.   Locks: nothing.
create or replace function pgflowd.active_runs(flow_slug text)
returns bigint language sql stable set search_path = '', pg_temp as $$
  select (select count(*) from pgflowd._open_runs(active_runs.flow_slug))
         + (select count(*) from pgflowd.runs as run
             where run.flow_slug = active_runs.flow_slug and run.state = 'planned');
$$;
