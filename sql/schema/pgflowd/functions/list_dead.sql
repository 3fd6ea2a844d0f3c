-- list_dead(flow, since, max_tasks): returns the dead letters of the newest runs: the tasks that failed for
-- good, of this flow, of runs that started within this time; null means any. No index knows a status, so
-- it looks at the newest 100,000 runs. Its query is planned for the very arguments, as that of _found_runs.
-- Called by: `pgflowd dead list`.   Locks: nothing.
create or replace function pgflowd.list_dead(
  flow text default null, since interval default null, max_tasks int default 20)
returns table (run_id uuid, step_slug text, task_index int, flow_slug text, attempts int,
               token bigint, outcome text, error_type text, error_message text,
               failed_at timestamptz)
language plpgsql stable set search_path = '', pg_temp as $$
declare
  flows constant text[] := case when list_dead.flow is not null
                                then pgflowd.flows_of(list_dead.flow) end;
begin
  return query execute replace($query$
    select dead.run_id, dead.step_slug, dead.task_index, dead.flow_slug, dead.attempts, dead.token,
           dead.outcome, dead.error_type, dead.error_message, dead.failed_at
      from (select run.run_id, run.status, run.started_at from pgflow.runs as run
             where ($1 is null or run.flow_slug @@)
               and ($2 is null or run.started_at > now() - $2)
             order by run.started_at desc limit 100000) as newest
     cross join lateral (
       select one.* from pgflowd.dead_letters as one
        where one.run_id = newest.run_id offset 0) as dead
     where newest.status = 'failed'
     order by newest.started_at desc, dead.step_slug, dead.task_index
     limit $3
    $query$, '@@', case when cardinality(flows) > 1 then '= any ($4)' else '= $1' end)
    using flows[1], list_dead.since, list_dead.max_tasks, flows;
end $$;
