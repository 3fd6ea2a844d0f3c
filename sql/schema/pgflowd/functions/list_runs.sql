-- list_runs(flow_slug, statuses, since, max_runs): returns the newest runs, with how far each
-- one is and why it failed. Null means any flow, any status, any age. A cancelled run has status
-- `cancelled` here. `steps_done` counts completed and skipped steps.
-- Called by: `pgflowd runs list`.   Locks: nothing.
create or replace function pgflowd.list_runs(
  flow_slug text default null, statuses text[] default null, since interval default null,
  max_runs int default 20)
returns table (run_id uuid, flow_slug text, status text, started_at timestamptz,
               ended_at timestamptz, steps int, steps_done int, error_message text)
language sql stable set search_path = '' as $$
  select found.run_id, found.flow_slug, found.status, found.started_at, found.ended_at,
         progress.steps, progress.done,
         coalesce(found.error_message, progress.error_message)
    from (select run.run_id, run.flow_slug, judged.status, run.started_at,
                 coalesce(run.completed_at, run.failed_at) as ended_at,
                 case when run.status = 'failed'
                      then to_jsonb(run) ->> 'error_message' end as error_message
            from pgflow.runs as run
            left join pgflowd.runs as ours on ours.run_id = run.run_id
           cross join lateral (
             select case when ours.cancelled_at is not null then 'cancelled'
                         else run.status end as status) as judged
           where (list_runs.flow_slug is null or run.flow_slug = list_runs.flow_slug)
             and (list_runs.statuses is null or judged.status = any (list_runs.statuses))
             and (list_runs.since is null or run.started_at > now() - list_runs.since)
           order by run.started_at desc, run.run_id desc
           limit list_runs.max_runs) as found
   cross join lateral (
     select count(*)::int as steps,
            count(*) filter (where state.status in ('completed', 'skipped'))::int as done,
            min(state.error_message) filter (where state.status = 'failed') as error_message
       from pgflow.step_states as state where state.run_id = found.run_id) as progress
   order by found.started_at desc, found.run_id desc;
$$;
