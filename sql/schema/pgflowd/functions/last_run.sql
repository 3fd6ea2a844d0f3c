-- last_run(flow_slug): the newest run of this flow, of any of its versions; of all flows (null) the newest that
-- a person or an application has started: none of a schedule's ticks, no child, and no undo. One that has not
-- begun counts. It walks the newest 100,000 runs.
-- Called by: commands.   Locks: nothing.
create or replace function pgflowd.last_run(flow_slug text default null)
returns uuid language sql stable set search_path = '', pg_temp as $$
  select newest.run_id
    from ((select run.run_id, run.started_at as at
             from (select one.run_id, one.started_at from pgflow.runs as one
                    where last_run.flow_slug is null order by one.started_at desc limit 100000) as run
            where not exists (select from pgflowd.runs as ours
                               where ours.run_id = run.run_id and pgflowd._began_by_itself(ours))
            order by run.started_at desc limit 1)
          union all
          (select run.run_id, run.created_at
             from (select ours.* from pgflowd.runs as ours
                    where last_run.flow_slug is null and ours.state <> 'started'
                    order by ours.created_at desc limit 100000) as run
            where not pgflowd._began_by_itself(run::pgflowd.runs)
            order by run.created_at desc limit 1)
          union all
          select run.run_id, run.started_at
            from unnest(pgflowd.flows_of(last_run.flow_slug)) as version (flow_slug)
           cross join lateral (
             select one.run_id, one.started_at from pgflow.runs as one
              where one.flow_slug = version.flow_slug order by one.started_at desc limit 1) as run
          union all
          select run.run_id, run.created_at
            from unnest(pgflowd.flows_of(last_run.flow_slug)) as version (flow_slug)
           cross join unnest('{planned,ended}'::text[]) as never (state)
           cross join lateral (
             select one.run_id, one.created_at from pgflowd.runs as one
              where one.flow_slug = version.flow_slug and one.state = never.state
              order by one.created_at desc limit 1) as run) as newest
   order by newest.at desc limit 1;
$$;
