-- _waiting_runs(flow_slug): returns the run of each task of a flow that waits, those that have waited
-- longest first; of ten thousand tasks at most, since to count more takes too long.
-- Called by: _count_open_runs, list_flows, _open_runs, view flow_status.   Locks: nothing.
create or replace function pgflowd._waiting_runs(flow_slug text)
returns setof uuid language plpgsql stable rows 10 set search_path = '', pg_temp as $$
begin
  return query
    select wait.run_id from pgflowd.waits as wait
     where wait.flow_slug = _waiting_runs.flow_slug order by wait.nr limit 10000;
end $$;
