-- open_tasks(flows): returns how many tasks of these flows, of all their versions, are ready or running:
-- the number by which KEDA and others decide how many daemons there should be. They are counted
-- through the queues: of each at most ten thousand that are visible, and the started ones among the next
-- ten thousand, so it costs no more however many there are. What waits, is delayed, or is done by a
-- person is not counted, nor what is ready in a paused flow. PF002 for an unknown flow, which else would
-- never grow.
-- Called by: applications.   Locks: nothing.
create or replace function pgflowd.open_tasks(flows text[])
returns bigint language plpgsql stable set search_path = '', pg_temp as $$
declare
  flow record;
  running bigint;
  found_tasks bigint := 0;
begin
  perform pgflowd._require_flow(given.name) from unnest(open_tasks.flows) as given (name);
  for flow in
    select distinct one.slug, known.queue_name,
           to_regclass(pgflowd._queue_table(known.queue_name)) as messages,
           exists (select from pgflowd.paused_flows as paused
                    where paused.flow_slug = one.slug) as is_paused
      from unnest(open_tasks.flows) as given (name)
     cross join lateral unnest(pgflowd.flows_of(given.name)) as one (slug)
     cross join lateral pgflowd._queues(one.slug) as known
  loop
    continue when flow.messages is null;
    if not flow.is_paused then
      found_tasks := found_tasks + (select queue.ready
                                      from pgflowd._queue_status(flow.queue_name) as queue);
    end if;
    execute format($query$
      select coalesce(sum(held.tasks), 0)
        from (select task.last_worker_id, count(*) as tasks
                from (select one.msg_id from %s as one where one.vt > $2
                       order by one.vt limit 10000) as hidden
               cross join lateral (
                 select one.status, one.last_worker_id from pgflow.step_tasks as one
                  where one.flow_slug = $1 and one.message_id = hidden.msg_id offset 0) as task
               where task.status = 'started'
               group by task.last_worker_id) as held
       where not pgflowd._is_person(held.last_worker_id)
      $query$, flow.messages) into running using flow.slug, clock_timestamp();
    found_tasks := found_tasks + running;
  end loop;
  return found_tasks;
end $$;
