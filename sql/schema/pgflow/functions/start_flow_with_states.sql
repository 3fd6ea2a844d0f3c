-- start_flow_with_states(flow_slug, input, run_id): starts a run and returns it with its states. PF009
-- for an id of version 8 (_check_reserved).
-- Security definer, so that a role which may touch no table can start runs.
-- Called by: clients, applications.   Locks: the new rows.
create or replace function pgflow.start_flow_with_states(
  flow_slug text, input jsonb, run_id uuid default null)
returns jsonb language plpgsql security definer set search_path = '', pg_temp as $$
declare
  new_id uuid;
begin
  perform pgflowd._check_reserved(start_flow_with_states.run_id, null, null);
  select run.run_id into new_id
    from pgflow.start_flows(start_flow_with_states.flow_slug, array[start_flow_with_states.input],
                            array[start_flow_with_states.run_id]) as run;
  return pgflow.get_run_with_states(new_id);
end $$;
