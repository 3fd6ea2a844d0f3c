-- list_flows(): returns every flow, its waiting and running work, its workers, and its last run.
-- Open work is counted through the queues, which hold nothing else, and through what waits and what is
-- planned, at most ten thousand messages, waits and planned runs of each. A worker counts as living if its last heartbeat was in
-- the last half minute. A flow is asleep if a worker of it sleeps, which a daemon starts again when there is work.
-- `undoes`: the flow whose runs this one undoes, if that is what it is for.
-- `paused_at` and what follows are null for a flow that is not paused.
-- Called by: commands.   Locks: nothing.
create or replace function pgflowd.list_flows()
returns table (flow_slug text, steps int, queue_name text, is_watched boolean, queued bigint,
               oldest_queued_at timestamptz, running bigint, active_runs bigint, workers bigint,
               last_run_at timestamptz, created_at timestamptz, is_asleep boolean,
               waiting bigint, planned bigint, paused_at timestamptz, paused_by text,
               pause_reason text, undoes text)
language plpgsql stable set search_path = '' as $$
#variable_conflict use_column
declare
  flow record;
  queue regclass;
  open uuid[];  -- the runs with messages
  waits uuid[];  -- the run of each task that waits
begin
  for flow in
    select known.flow_slug, known.created_at, served.queue_name
      from pgflow.flows as known
     cross join lateral (
       select min(queue.queue_name) as queue_name
         from pgflowd._queues(known.flow_slug) as queue) as served
     order by known.flow_slug
  loop
    flow_slug := flow.flow_slug;
    created_at := flow.created_at;
    queue_name := flow.queue_name;
    steps := (select count(*) from pgflow.steps as step where step.flow_slug = flow.flow_slug);
    undoes := (select substr(flow.flow_slug, length('undo_') + 1)
                where exists (select from pgflow.steps as step
                               where step.flow_slug = flow.flow_slug
                                 and (to_jsonb(step) -> 'settles')::boolean));
    last_run_at := (select max(run.started_at) from pgflow.runs as run
                     where run.flow_slug = flow.flow_slug);
    workers := (select count(*) from pgflow.workers as worker
                 where worker.queue_name = flow.queue_name and to_jsonb(worker) ->> 'stopped_at' is null
                   and worker.last_heartbeat_at > now() - interval '30 s');
    is_asleep := exists (select from pgflow.workers as worker
                          where worker.queue_name = flow.queue_name and pgflowd._is_asleep(worker));
    queue := to_regclass(format('pgmq.%I', pgmq.format_table_name(flow.queue_name, 'q')));
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
