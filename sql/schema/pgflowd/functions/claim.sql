-- claim(flow_slug, worker_id, max_tasks, lease): take up to `max_tasks` tasks of this flow.
-- Reads messages, which hides them for `lease`, starts their tasks, and opens an attempt for
-- each: the token returned is the right to report. A worker that will not beat passes null:
-- messages are then hidden for the flow's longest timeout + 2 s, and each lease lasts for its
-- step's. Where fewer tasks start than messages were read, _pass_over looks after the others,
-- tasks whose lease has lapsed are taken over, and the claim reads on, three times at most.
-- A deprecated or stopped worker gets nothing. PF002 for an unknown flow or worker.
-- Tasks queued after this transaction began are left to a younger one.
-- Waits for nothing, so it may follow a report in one transaction and sees what that made ready.
-- Called by: workers.   Locks: queue rows and tasks, skipping locked ones.
create or replace function pgflowd.claim(
  flow_slug text, worker_id uuid, max_tasks int, lease interval default '30 s')
returns setof pgflowd.claimed_task language plpgsql set search_path = '' as $$
declare
  worker record;
  longest int;
  queue record;
  wanted int := claim.max_tasks;
  began timestamptz;
  hidden_s int;
  read_ids bigint[];
  passed record;
  young bigint[];
  got int;
begin
  select known.deprecated_at is not null
         or to_jsonb(known) ->> 'stopped_at' is not null as leaving into worker
    from pgflow.workers as known where known.worker_id = claim.worker_id;
  if not found then
    raise exception 'there is no worker %', claim.worker_id using errcode = 'PF002',
      hint = 'a worker adds itself to pgflow.workers before it claims';
  end if;
  select max(coalesce(step.opt_timeout, flow.opt_timeout)) into longest
    from pgflow.flows as flow
    left join pgflow.steps as step on step.flow_slug = flow.flow_slug
   where flow.flow_slug = claim.flow_slug;
  if longest is null then
    raise exception 'there is no flow %', quote_literal(claim.flow_slug)
      using errcode = 'PF002', hint = 'deploy it with `pgflowd flows deploy`';
  end if;
  if worker.leaving then
    return;
  end if;
  hidden_s := greatest(1, ceil(extract(epoch from coalesce(claim.lease,
                                                           make_interval(secs => longest + 2)))));

  for queue in select known.queue_name, known.step_slug
                 from pgflowd._queues(claim.flow_slug) as known loop
    young := '{}';
    for round in 1..3 loop
      exit when wanted <= 0;
      began := clock_timestamp();
      select array_agg(message.msg_id) into read_ids
        from pgmq.read(queue_name => queue.queue_name, vt => hidden_s, qty => wanted) as message;
      exit when read_ids is null;
      return query select * from pgflowd._begin(
        claim.flow_slug, queue.queue_name, queue.step_slug, read_ids, claim.worker_id, began,
        claim.lease);
      get diagnostics got = row_count;
      wanted := wanted - got;
      exit when got = cardinality(read_ids);

      passed := pgflowd._pass_over(claim.flow_slug, queue.queue_name, read_ids, longest);
      young := young || passed.young;
      if passed.given_back is not null then
        return query select * from pgflowd._begin(
          claim.flow_slug, queue.queue_name, queue.step_slug, passed.given_back,
          claim.worker_id, began, claim.lease);
        get diagnostics got = row_count;
        wanted := wanted - got;
      end if;
    end loop;
    if cardinality(young) > 0 then
      perform pgflowd._show(queue.queue_name, young, clock_timestamp());
      perform pgflowd._wake(queue.queue_name);
    end if;
  end loop;
end $$;
