-- claim(flow_slug, worker_id, max_tasks, lease, with_run, caps, with_trace): takes up to `max_tasks`
-- tasks of this flow. Reads the messages that have been visible for longest, which hides them for
-- `lease`, starts their tasks, and opens an attempt for each: the token returned is the right to report.
-- A worker without heartbeats passes null: messages are then hidden for the flow's longest timeout + 2
-- s, and each lease lasts for its step's. `with_run` names later steps whose handlers take the run's
-- input, which `flow_input` then has (_start_attempts). Where fewer tasks start than messages were read,
-- _handle_unstarted deals with the others, tasks whose lease has lapsed are taken over, and the claim
-- reads on, three times at most. Messages sent after this transaction began are left to a younger one;
-- those that a server's clock which was set back shows as sent in the future stay hidden until then.
-- `caps` are what the worker has. With some it first takes tasks that wait for a worker that has them
-- (_take_needed). In a flow with gates it begins only what may begin, and puts aside what may not
-- (_pass_gates), after it has passed on the places of limits that reports have freed; where much is put
-- aside it reads on, a hundred at a time, ten times at most. With `with_trace` it looks up, for each
-- run, to which trace it belongs (_trace_of). A task that cannot be started, since its input cannot be
-- built, fails by itself (_start_each). A deprecated or stopped worker gets nothing, and nobody a task
-- of a paused flow. PF002 for an unknown flow or worker, PF030 while functions of schema pgflow are not ours. A worker that was silent for long keeps its row
-- from being pruned meanwhile, or finds that this happens. It waits for nothing, so it may follow a
-- report in one transaction, and it sees what that made ready.
-- Called by: workers.
-- Locks: queue rows and tasks, skipping locked ones; attempts; see _keep_worker.
create or replace function pgflowd.claim(
  flow_slug text, worker_id uuid, max_tasks int, lease interval default '30 s',
  with_run text[] default null, caps text[] default null, with_trace boolean default false)
returns setof pgflowd.claimed_task language plpgsql set search_path = '', pg_temp as $$
declare
  leaving boolean;
  silent boolean;
  has_gates boolean;
  wanted int := coalesce(claim.max_tasks, 0);
  hidden_s int;
  queue record;
  began timestamptz;
  read record;
  gate record;
  may_begin bigint[];
  has_put_aside boolean;
  are_limited boolean;
  unstarted record;
  young bigint[];
  got int;
begin
  select case when not exists (select from pgflowd.settings as kept
                                where kept.name = 'replaced_functions')
              then worker.deprecated_at is not null or worker.stopped_at is not null
                   or exists (select from pgflowd.paused_flows as paused
                               where paused.flow_slug = claim.flow_slug) end,
         worker.last_heartbeat_at < now() - interval '1 minute',
         flow.is_gated
    into leaving, silent, has_gates
    from pgflow.workers as worker
    join pgflow.flows as flow on flow.flow_slug = claim.flow_slug
   where worker.worker_id = claim.worker_id;
  if leaving is null then
    perform pgflowd._refuse_claim(claim.flow_slug, claim.worker_id);
  elsif leaving then
    return;
  elsif silent then
    perform pgflowd._refuse_claim(claim.flow_slug, claim.worker_id)
      where not pgflowd._keep_worker(claim.worker_id);
  end if;
  hidden_s := greatest(1, ceil(coalesce(
    extract(epoch from claim.lease), pgflowd._longest_timeout(claim.flow_slug) + 2)));

  for queue in select known.queue_name, known.step_slug
                 from pgflowd._queues(claim.flow_slug) as known loop
    young := '{}';
    has_put_aside := false;
    are_limited := false;
    if has_gates then
      perform pgflowd._pass_slots(100);
    end if;
    for round in 0 .. case when has_gates then 10 else 3 end loop
      exit when wanted <= 0;
      began := clock_timestamp();
      if round = 0 then
        continue when claim.caps is null;
        select taken.msg_ids, taken.needs, false as again into read
          from pgflowd._take_needed(claim.flow_slug, queue.queue_name, wanted, hidden_s,
                                    claim.caps) as taken;
        continue when read.msg_ids is null;
      else
        select array_agg(message.msg_id) filter (where message.enqueued_at <= now()) as msg_ids,
               array_agg(message.msg_id) filter (where message.enqueued_at > now()) as young,
               bool_or(message.read_ct > 1) as again, null::text[] as needs
          into read
          from pgflowd._read_messages(
                 queue.queue_name, case when has_put_aside then greatest(wanted, 100) else wanted end,
                 hidden_s) as message;
        young := young || read.young;
        exit when read.msg_ids is null;
      end if;
      may_begin := read.msg_ids;
      if has_gates then
        gate := pgflowd._pass_gates(claim.flow_slug, queue.queue_name, read.msg_ids, wanted,
                                    claim.caps, read.needs);
        may_begin := gate.may_begin;
        are_limited := gate.are_limited;
        read.msg_ids := gate.may_begin || gate.others;
        has_put_aside := gate.has_put_aside;
        continue when read.msg_ids = '{}';
      end if;
      begin
        return query select * from pgflowd._start_attempts(
          claim.flow_slug, queue.queue_name, queue.step_slug, may_begin, claim.worker_id, began,
          claim.lease, claim.with_run, are_limited, claim.with_trace);
        get diagnostics got = row_count;
      exception when data_exception or program_limit_exceeded or out_of_memory or internal_error
                     or raise_exception then
        return query select * from pgflowd._start_each(
          claim.flow_slug, queue.queue_name, queue.step_slug, may_begin, claim.worker_id, began,
          claim.lease, claim.with_run, are_limited, claim.with_trace);
        get diagnostics got = row_count;
      end;
      wanted := wanted - got;
      if got < cardinality(read.msg_ids) then
        unstarted := pgflowd._handle_unstarted(claim.flow_slug, queue.queue_name, read.msg_ids);
        young := young || unstarted.young;
        if has_gates and unstarted.requeued is not null then  -- they have to pass the gates again
          perform pgflowd._make_visible(queue.queue_name, unstarted.requeued, clock_timestamp());
        elsif unstarted.requeued is not null then
          return query select * from pgflowd._start_each(
            claim.flow_slug, queue.queue_name, queue.step_slug, unstarted.requeued,
            claim.worker_id, began, claim.lease, claim.with_run, with_trace => claim.with_trace);
          wanted := wanted - cardinality(unstarted.requeued);
        end if;
      end if;
      if read.again then
        perform pgflowd._close_older(claim.flow_slug, read.msg_ids, claim.worker_id);
      end if;
      exit when round > 0 and got = cardinality(read.msg_ids) and not has_put_aside;
    end loop;
    if cardinality(young) > 0 then
      perform pgflowd._ring(queue.queue_name)
        where pgflowd._show_young(queue.queue_name, young);
    end if;
  end loop;
end $$;
