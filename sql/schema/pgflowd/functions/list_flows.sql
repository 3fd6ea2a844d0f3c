-- list_flows(with_old): returns every flow, its waiting and running work, its workers, and its last run.
-- Of a flow with versions only the current one, with `name`, and how many older ones there are, and how
-- many of their runs are open; `with_old` also those, without a name. Open work is counted through the
-- queues, which hold nothing else, and through what waits and what is planned, at most ten thousand
-- messages, waits and planned runs of each. A worker counts as living if its last heartbeat was in the
-- last half minute. A flow is asleep if a worker of it sleeps, which a daemon starts again when there is
-- work. `undoes`: the flow whose runs this one undoes, if that is what it is for. `paused_at` and what
-- follows are null for a flow that is not paused.
-- Called by: commands.   Locks: nothing.
create or replace function pgflowd.list_flows(with_old boolean default false)
returns table (flow_slug text, steps int, queue_name text, is_watched boolean, queued bigint,
               oldest_queued_at timestamptz, running bigint, active_runs bigint, workers bigint,
               last_run_at timestamptz, created_at timestamptz, is_asleep boolean,
               waiting bigint, planned bigint, paused_at timestamptz, paused_by text,
               pause_reason text, undoes text, name text, version int, old_versions int, old_runs bigint)
language plpgsql stable set search_path = '', pg_temp as $$
#variable_conflict use_column
declare
  flow record;
  queue regclass;
  open uuid[];  -- the runs with messages
  waits uuid[];  -- the run of each task that waits
begin
  for flow in
    select known.flow_slug, known.created_at, served.queue_name, one.name, one.version, one.is_current
      from pgflow.flows as known
     cross join lateral (
       select min(queue.queue_name) as queue_name
         from pgflowd._queues(known.flow_slug) as queue) as served
      left join pgflowd.versions as one on one.flow_slug = known.flow_slug
     where list_flows.with_old or coalesce(one.is_current, true)
     order by coalesce(one.name, known.flow_slug), one.version desc
  loop
    flow_slug := flow.flow_slug;
    created_at := flow.created_at;
    name := case when flow.name is null then flow.flow_slug when flow.is_current then flow.name end;
    version := coalesce(flow.version, 1);
    old_versions := 0; old_runs := 0;
    if flow.is_current then
      select count(*), coalesce(sum(case when pgflowd._has_open_work(other.flow_slug)
                                         then pgflowd.active_runs(other.flow_slug) end), 0)
        into old_versions, old_runs
        from pgflowd.versions as other where other.name = flow.name and not other.is_current;
    end if;
    queue_name := flow.queue_name;
    steps := (select count(*) from pgflow.steps as step where step.flow_slug = flow.flow_slug);
    undoes := (select substr(coalesce(flow.name, flow.flow_slug), length('undo_') + 1)
                where exists (select from pgflow.steps as step
                               where step.flow_slug = flow.flow_slug
                                 and step.settles));
    last_run_at := (select one.started_at  -- in the order of the index: see flow_grid
                      from (select run.flow_slug, run.started_at from pgflow.runs as run
                             where run.flow_slug >= flow.flow_slug
                             order by run.flow_slug, run.started_at desc limit 1) as one
                     where one.flow_slug = flow.flow_slug);
    workers := (select count(*) from pgflow.workers as worker
                 where worker.queue_name = flow.queue_name and worker.stopped_at is null
                   and worker.last_heartbeat_at > now() - interval '30 s');
    is_asleep := exists (select from pgflow.workers as worker
                          where worker.queue_name = flow.queue_name and pgflowd._is_asleep(worker));
    queue := to_regclass(pgflowd._queue_table(flow.queue_name));
    is_watched := exists (select from pg_catalog.pg_trigger as trigger
                           where trigger.tgrelid = queue and trigger.tgname = 'pgflowd_notify');
    waits := array(select pgflowd._waiting_runs(flow.flow_slug));
    waiting := cardinality(waits);
    planned := (select count(*)
                  from (select from pgflowd.runs as run
                         where run.flow_slug = flow.flow_slug and run.state = 'planned'
                         limit 10000) as one);
    select paused.paused_at, paused.paused_by, paused.pause_reason
      into paused_at, paused_by, pause_reason
      from pgflowd.paused_flows as paused where paused.flow_slug = flow.flow_slug;
    queued := 0; running := 0; open := '{}'; oldest_queued_at := null;
    if queue is not null then
      execute format($query$
        select count(*) filter (where task.status = 'queued'),
               min(task.queued_at) filter (where task.status = 'queued' and message.vt <= now()),
               count(*) filter (where task.status = 'started'),
               array_agg(distinct task.run_id)
          from (select one.msg_id, one.vt from %s as one limit 10000) as message
         cross join lateral (
           select one.run_id, one.status, one.queued_at from pgflow.step_tasks as one
            where one.flow_slug = $1 and one.message_id = message.msg_id offset 0) as task
         where task.status in ('queued', 'started')
        $query$, queue)
        into queued, oldest_queued_at, running, open using flow.flow_slug;
    end if;
    active_runs := (
      select count(*) from (select unnest(open) union select unnest(waits)) as counted);
    return next;
  end loop;
end $$;
