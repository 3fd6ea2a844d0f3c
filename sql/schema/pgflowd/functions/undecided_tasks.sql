-- undecided_tasks(): returns what waits for a person: tasks in quarantine (`kind` quarantined), and what
-- tasks wait for that no living worker has (`kind` need, with its name), of each flow; the first run,
-- and how many tasks, at most a hundred. And flows that are paused as a whole (`kind` paused), `name`:
-- by whom, and why. And runs that wait for each other (`kind` cycle): the first of them, `name`: for which run
-- it waits, and how many have a task that waits so.
-- Called by: the sweeper, commands.   Locks: nothing.
create or replace function pgflowd.undecided_tasks()
returns table (flow_slug text, kind text, name text, run_id uuid, tasks bigint)
language sql stable set search_path = '', pg_temp as $$
  select one.flow_slug, 'quarantined', null, (array_agg(one.run_id order by one.since))[1], count(*)
    from (select wait.flow_slug, wait.run_id, wait.since from pgflowd.waits as wait
           where wait.kind = 'quarantined' order by wait.since limit 100) as one
   group by one.flow_slug
   union all
  select flow.flow_slug, 'need', needed.name, first.run_id, first.tasks
    from pgflow.flows as flow
   cross join lateral pgflowd._waiting_needs(flow.flow_slug) as needed (name)
   cross join lateral (
     select (array_agg(one.run_id order by one.nr))[1] as run_id, count(*) as tasks
       from (select wait.run_id, wait.nr from pgflowd.waits as wait
              where wait.flow_slug = flow.flow_slug and wait.kind = 'need'
                and wait.name = needed.name
              order by wait.nr limit 100) as one) as first
   where not pgflowd._is_served(flow.flow_slug, needed.name) and first.tasks > 0
   union all
  select pgflowd._name_of(paused.flow_slug), 'paused',
         min(concat_ws(': ', coalesce(paused.paused_by, 'an unknown user'),
                       nullif(paused.pause_reason, ''))), null, 0
    from pgflowd.paused_flows as paused group by 1
   union all
  select min(stuck.flow_slug), 'cycle', (array_agg(stuck.awaited order by stuck.run_id))[1]::text,
         (array_agg(stuck.run_id order by stuck.run_id))[1], count(*)
    from pgflowd._wait_cycles() as stuck having count(*) > 0;
$$;
