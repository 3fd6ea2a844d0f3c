-- run_family(run_id, max_rows): returns the family of a run: the run above it that no other run has started,
-- and all those below, each after its parent. `depth` is 0 for the first. A run whose parent was deleted
-- is the first of its family.
-- Called by: commands.   Locks: nothing.
create or replace function pgflowd.run_family(run_id uuid, max_rows int default 1000)
returns table (run_id uuid, parent_run_id uuid, parent_step text, parent_index int, depth int,
               flow_slug text, status text, started_at timestamptz, ended_at timestamptz)
language sql stable set search_path = '', pg_temp as $$
  with recursive above as (
    select run_family.run_id as run_id, 0 as height
    union all
    select parent.run_id, above.height + 1
      from above
      join pgflowd.runs as ours on ours.run_id = above.run_id
     cross join lateral (
       select one.run_id from pgflowd.run_status as one
        where one.run_id = ours.parent_run_id offset 0) as parent
  ), below as (
    (select above.run_id, null::uuid as parent_run_id, null::text as parent_step,
            null::int as parent_index, 0 as depth, null::timestamptz as created_at
       from above order by above.height desc limit 1)
    union all
    select child.run_id, child.parent_run_id, child.parent_step, child.parent_index,
           below.depth + 1, child.created_at
      from below
      join pgflowd.runs as child on child.parent_run_id = below.run_id
  )
  select one.run_id, one.parent_run_id, one.parent_step, one.parent_index, one.depth,
         known.flow_slug, known.status, known.started_at, known.ended_at
    from (select below.* from below limit run_family.max_rows) as one
   cross join lateral (
     select run.flow_slug, run.status, run.started_at, run.ended_at
       from pgflowd.run_status as run where run.run_id = one.run_id offset 0) as known
   order by one.depth, one.created_at, one.run_id;
$$;
