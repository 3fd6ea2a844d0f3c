-- waiting_tasks(): returns how many tasks of each flow wait, of flows with such tasks. It counts to ten
-- thousand.
-- Called by: the sweeper, commands.   Locks: nothing.
create or replace function pgflowd.waiting_tasks()
returns table (flow_slug text, waiting bigint) language sql stable set search_path = '' as $$
  select flow.flow_slug, counted.tasks
    from pgflow.flows as flow
   cross join lateral (
     select count(*) as tasks from pgflowd._waiting_runs(flow.flow_slug)) as counted
   where counted.tasks > 0;
$$;
