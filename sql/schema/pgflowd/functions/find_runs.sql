-- find_runs(digits, max_runs): returns the runs whose id ends with these hexadecimal digits, newest
-- first. It walks the newest 100,000 runs, and as many that have not begun, until it has enough.
-- Called by: commands.   Locks: nothing.
create or replace function pgflowd.find_runs(digits text, max_runs int default 2)
returns table (run_id uuid, flow_slug text, started_at timestamptz)
language sql stable set search_path = '', pg_temp as $$
  select found.run_id, found.flow_slug, found.started_at
    from ((select run.run_id, run.flow_slug, run.started_at, run.started_at as at
             from (select one.run_id, one.flow_slug, one.started_at from pgflow.runs as one
                    order by one.started_at desc limit 100000) as run
            where right(replace(run.run_id::text, '-', ''), length(find_runs.digits)) = find_runs.digits
            order by run.started_at desc
            limit find_runs.max_runs)
          union all
          (select run.run_id, run.flow_slug, null, run.created_at
             from (select one.run_id, one.flow_slug, one.created_at from pgflowd.runs as one
                    where one.state <> 'started' order by one.created_at desc limit 100000) as run
            where right(replace(run.run_id::text, '-', ''), length(find_runs.digits)) = find_runs.digits
            order by run.created_at desc
            limit find_runs.max_runs)) as found
   order by found.at desc
   limit find_runs.max_runs;
$$;
