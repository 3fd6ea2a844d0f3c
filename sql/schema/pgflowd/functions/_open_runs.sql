-- _open_runs(flow_slug): returns the runs of a flow, or (null) of all, that have not ended. No index
-- knows that, so they are found through the queues, which hold open work only, and through what waits,
-- at most 10,000 waits of each flow; a run whose messages are gone is found if it is one of the
-- newest 10,000.
-- Called by: active_runs, stalled_tasks.   Locks: nothing.
create or replace function pgflowd._open_runs(flow_slug text)
returns setof uuid language plpgsql stable set search_path = '', pg_temp as $$
declare
  queue record;
  found uuid[];
  open uuid[];
begin
  found := array(
    select run.run_id
      from (select one.run_id, one.status from pgflow.runs as one
             where _open_runs.flow_slug is null
             order by one.started_at desc limit 10000) as run
     where run.status = 'started'
     union all
    select run.run_id
      from (select one.run_id, one.status, one.flow_slug
              from pgflow.runs as one  -- in the order of the index: see flow_grid
             where one.flow_slug >= _open_runs.flow_slug
             order by one.flow_slug, one.started_at desc limit 10000) as run
     where run.status = 'started' and run.flow_slug = _open_runs.flow_slug
     union all
    select distinct waiting.run_id
      from pgflow.flows as flow
     cross join lateral pgflowd._waiting_runs(flow.flow_slug) as waiting (run_id)
     where _open_runs.flow_slug is null or flow.flow_slug = _open_runs.flow_slug);
  for queue in
    select flow.flow_slug,
           to_regclass(pgflowd._queue_table(known.queue_name)) as messages
      from pgflow.flows as flow cross join lateral pgflowd._queues(flow.flow_slug) as known
     where _open_runs.flow_slug is null or flow.flow_slug = _open_runs.flow_slug
  loop
    if queue.messages is not null then
      execute format($query$
        select array_agg(distinct task.run_id)
          from %s as message
         cross join lateral (
           select one.run_id from pgflow.step_tasks as one
            where one.flow_slug = $1 and one.message_id = message.msg_id offset 0) as task
         cross join lateral (
           select from pgflow.runs as run
            where run.run_id = task.run_id and run.status = 'started' offset 0) as run
        $query$, queue.messages) into open using queue.flow_slug;
      found := found || open;
    end if;
  end loop;
  return query select distinct one from unnest(found) as one;
end $$;
