-- _count_waits(flow_slug): returns how many tasks of a flow wait, by kind, and since when the first of
-- each does; of the ten thousand tasks that have waited for longest, since to count more takes too long.
-- Called by: waiting_tasks.   Locks: nothing.
create or replace function pgflowd._count_waits(flow_slug text)
returns table (kind text, tasks bigint, oldest_at timestamptz)
language plpgsql stable rows 1 set search_path = '', pg_temp as $$
#variable_conflict use_column
begin
  return query
    select one.kind, count(*), min(one.since)
      from (select wait.kind, wait.since from pgflowd.waits as wait
             where wait.flow_slug = _count_waits.flow_slug order by wait.nr limit 10000) as one
     group by one.kind;
end $$;
