-- start_runs(flow_slug, inputs, run_ids): starts a run for each input in the current version of a flow,
-- all or none, and returns them in this order: the rows as they were inserted, or as get_run has one that
-- waits for another one's singleton key, since its flow asks for one. PF009 for an id of version 8
-- (_check_reserved). Security definer, so that a role which may touch no table can start runs.
-- Called by: clients.   Locks: as pgflow.start_flows.
create or replace function pgflowd.start_runs(flow_slug text, inputs jsonb[], run_ids uuid[])
returns setof jsonb language plpgsql security definer set search_path = '', pg_temp as $$
begin
  perform pgflowd._check_reserved(given.run_id, null, null)
     from unnest(start_runs.run_ids) as given (run_id);
  return query
    select coalesce(to_jsonb(run), pgflowd.get_run(given.run_id, false) -> 'run')
      from unnest(start_runs.run_ids) with ordinality as given (run_id, nr)
      left join pgflow.start_flows(pgflowd.current_flow(start_runs.flow_slug), start_runs.inputs,
                                   start_runs.run_ids) as run on run.run_id = given.run_id
     order by given.nr;
end $$;
