-- start_flow_with_states(flow_slug, input, run_id): starts a run and returns it with its states; one that
-- waits for another one's singleton key, since its flow asks for one, as pgflowd.get_run does. PF009
-- for an id of version 8 (_check_reserved).
-- Security definer, so that a role which may touch no table can start runs.
-- Called by: applications.   Locks: the new rows.
create or replace function pgflow.start_flow_with_states(
  flow_slug text, input jsonb, run_id uuid default null)
returns jsonb language plpgsql security definer set search_path = '', pg_temp as $$
declare
  new_id uuid := coalesce(start_flow_with_states.run_id, gen_random_uuid());
begin
  perform pgflowd._check_reserved(start_flow_with_states.run_id, null, null);
  perform from pgflow.start_flows(start_flow_with_states.flow_slug,
                                  array[start_flow_with_states.input], array[new_id]) as run;
  return coalesce(pgflow.get_run_with_states(new_id), pgflowd.get_run(new_id));
end $$;
