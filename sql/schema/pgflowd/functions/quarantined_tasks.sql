-- quarantined_tasks(): returns how many tasks of each flow are quarantined, of flows with such tasks. It
-- counts to ten thousand in all, and names five hundred flows at most.
-- Called by: the sweeper.   Locks: nothing.
create or replace function pgflowd.quarantined_tasks()
returns table (flow_slug text, quarantined bigint) language sql stable set search_path = '' as $$
  select one.flow_slug, count(*)
    from (select wait.flow_slug from pgflowd.waits as wait
           where wait.kind = 'quarantined' order by wait.since limit 10000) as one
   group by one.flow_slug
   order by 2 desc limit 500;
$$;
