-- flow_grid(flow_slug, max_runs): returns the newest runs of a flow, of all its versions, that have begun,
-- newest first, each with its steps, in the order of the flow, and the status of each; a map is one. With
-- `flow_slug = …` the newest runs of a rare flow would be sought among those of all flows.
-- Called by: `pgflowd flows show`.   Locks: nothing.
create or replace function pgflowd.flow_grid(flow_slug text, max_runs int default 30)
returns table (run_id uuid, flow_slug text, status text, started_at timestamptz,
               ended_at timestamptz, steps text[], statuses text[])
language sql stable set search_path = '', pg_temp as $$
  select run.run_id, run.flow_slug, run.status, run.started_at, run.ended_at, state.steps,
         state.statuses
    from (select flow.slug, newest.run_id, newest.started_at
            from unnest(pgflowd.flows_of(flow_grid.flow_slug)) as flow (slug)
           cross join lateral (
             select one.run_id, one.started_at
               from (select known.flow_slug, known.run_id, known.started_at from pgflow.runs as known
                      where known.flow_slug >= flow.slug
                      order by known.flow_slug, known.started_at desc
                      limit flow_grid.max_runs) as one
              where one.flow_slug = flow.slug) as newest
           order by newest.started_at desc, newest.run_id desc limit flow_grid.max_runs) as found
   cross join lateral (
     select one.run_id, one.flow_slug, one.status, one.started_at, one.ended_at
       from pgflowd.run_status as one where one.run_id = found.run_id offset 0) as run
   cross join lateral (
     select array_agg(one.step_slug order by step.step_index) as steps,
            array_agg(one.status order by step.step_index) as statuses
       from pgflow.step_states as one
      cross join lateral (
        select known.step_index from pgflow.steps as known
         where known.flow_slug = one.flow_slug and known.step_slug = one.step_slug offset 0) as step
      where one.run_id = found.run_id) as state
   order by found.started_at desc, found.run_id desc;
$$;
