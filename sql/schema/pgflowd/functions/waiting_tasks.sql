-- waiting_tasks(): returns how many tasks of each flow wait, by kind of wait, of flows with such tasks.
-- It counts to ten thousand of a flow.
-- Called by: the sweeper, commands.   Locks: nothing.
create or replace function pgflowd.waiting_tasks()
returns table (flow_slug text, kind text, waiting bigint)
language sql stable set search_path = '', pg_temp as $$
  select flow.flow_slug, counted.kind, counted.tasks
    from pgflow.flows as flow
   cross join lateral pgflowd._count_waits(flow.flow_slug) as counted;
$$;
