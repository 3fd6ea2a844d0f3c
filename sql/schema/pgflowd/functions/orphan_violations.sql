-- orphan_violations(max_rows): returns I23: what is left of runs that are gone: signals that a sweep has seen,
-- awaits of who waits, and entries of runs that have begun. It looks at ten thousand of each.
-- Called by: violations; `pgflowd doctor`.   Locks: nothing.
create or replace function pgflowd.orphan_violations(max_rows int default 20)
returns table (invariant text, flow_slug text, run_id uuid, step_slug text, task_index int,
               detail text)
language sql stable set search_path = '', pg_temp set jit = off as $$
  select 'I23', null::text, part.run_id, null::text, null::int,
         format('the run is gone, and %s of it is left', part.what)
    from ((select signal.run_id, 'a signal' as what from pgflowd.signals as signal
            where not signal.is_new order by signal.signal_id limit 10000)
          union all
          (select one.run_id, 'an await' from pgflowd.awaits as one limit 10000)
          union all
          (select ours.run_id, 'the entry' from pgflowd.runs as ours
            where ours.state = 'started' limit 10000)) as part
   where not exists (select from pgflow.runs as run where run.run_id = part.run_id offset 0)
     and not exists (select from pgflowd.runs as ours
                      where ours.run_id = part.run_id and ours.state <> 'started' offset 0)
   limit orphan_violations.max_rows;
$$;
