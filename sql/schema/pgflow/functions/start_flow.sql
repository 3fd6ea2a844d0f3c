-- start_flow(flow_slug, input, run_id): starts one run and returns it as it is now.
-- Called by: pgflowd._start; applications.   Locks: the new rows.
create or replace function pgflow.start_flow(flow_slug text, input jsonb, run_id uuid default null)
returns setof pgflow.runs language plpgsql set search_path = '', pg_temp as $$
begin
  return query select * from pgflow.start_flows(
    start_flow.flow_slug, array[start_flow.input], array[start_flow.run_id]);
end $$;
