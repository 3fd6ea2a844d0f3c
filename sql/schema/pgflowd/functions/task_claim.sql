-- task_claim(flow_slug, caps, lease, actor): a person takes a task of this flow, or of any (null); no row
-- if there is none. Of any flow first what waits for somebody like this, then those of the oldest flow.
-- With caps it is one that needs something, and nothing else than these: first what waits for somebody
-- like this, then what nobody has looked at; without caps one that needs nothing. Those come first that have
-- waited, or been ready, for longest; it looks at ten thousand messages.
-- A person sends no heartbeats: the task is theirs for the whole lease, 30 days at most, and is queued
-- again when that is over, the attempt unspent. The run's input comes with it. Of a paused
-- flow nobody gets one. PF002 for an unknown flow.
-- Called by: `pgflowd tasks claim`, applications.
-- Locks: a message and its task, skipping locked ones; attempts, waits; see _person.
create or replace function pgflowd.task_claim(
  flow_slug text, caps text[], lease interval, actor text)
returns setof pgflowd.claimed_task language plpgsql security definer set search_path = '', pg_temp as $$
declare
  given constant text[] := coalesce(task_claim.caps, '{}');
  steps constant text[] := array(select step.step_slug from pgflow.steps as step
                                  where step.flow_slug = task_claim.flow_slug);
  has_gates boolean;
  queue record;
  person uuid;
  candidates bigint[];
  ready bigint;
  is_there boolean;
  met_needs text[];
  gate record;
  are_limited boolean := false;
  task pgflowd.claimed_task;
begin
  if task_claim.flow_slug is null then
    for queue in
      select flow.flow_slug
        from pgflow.flows as flow
        left join lateral (
          select min(waiting.first_nr) as nr from pgflowd._waiting_needs(flow.flow_slug) as waiting
           where string_to_array(waiting.needs, ',') <@ given) as line on given <> '{}'
       order by line.nr nulls last, flow.created_at, flow.flow_slug
    loop
      return query select * from pgflowd.task_claim(
        queue.flow_slug, task_claim.caps, task_claim.lease, task_claim.actor);
      exit when found;
    end loop;
    return;
  end if;
  select flow.is_gated into has_gates
    from pgflow.flows as flow where flow.flow_slug = task_claim.flow_slug;
  if not found then
    raise exception 'there is no flow %', quote_literal(task_claim.flow_slug)
      using errcode = 'PF002', hint = 'deploy it with `pgflowd flows deploy`';
  elsif (task_claim.lease > interval '0' and task_claim.lease <= interval '30 days') is not true then
    raise exception 'a lease of % is not possible', coalesce(task_claim.lease::text, 'null')
      using errcode = '22023', hint = 'ask for more than nothing, and for 30 days at most';
  elsif exists (select from pgflowd.paused_flows as paused
                 where paused.flow_slug = task_claim.flow_slug) then
    return;
  end if;
  for queue in select known.queue_name, known.step_slug
                 from pgflowd._queues(task_claim.flow_slug) as known loop
    candidates := null;
    met_needs := null;
    if exists (select from pgflowd._waiting_needs(task_claim.flow_slug) as waiting
                where given <> '{}' and string_to_array(waiting.needs, ',') <@ given) then
      person := pgflowd._person(queue.queue_name, task_claim.actor);  -- before any task is locked
      select taken.msg_ids, taken.needs into candidates, met_needs
        from pgflowd._take_needed(task_claim.flow_slug, queue.queue_name, 1, 0, given) as taken;
    end if;
    if candidates is null then
      execute format($query$
        select array(
          select message.msg_id
            from (select one.msg_id, one.vt from %s as one
                   where one.vt <= $1 order by one.vt limit 10000) as message
           cross join lateral (
             select one.step_slug from pgflow.step_tasks as one
              where one.flow_slug = $2 and one.message_id = message.msg_id
                and one.status = 'queued' offset 0) as task
            left join pgflowd.step_options as option
              on option.flow_slug = $2 and option.step_slug = task.step_slug
           where case when $3 = '{}' then option.needs is null else option.needs <@ $3 end
           order by message.vt limit 100)
        $query$, pgflowd._queue_table(queue.queue_name))
        into candidates using clock_timestamp(), task_claim.flow_slug, given;
      continue when candidates = '{}';
      person := pgflowd._person(queue.queue_name, task_claim.actor);
    end if;
    foreach ready in array candidates loop
      -- who has not locked the message does not know whether the task has begun to wait
      execute format('select true from %s where msg_id = $1 for update skip locked',
                     pgflowd._queue_table(queue.queue_name)) into is_there using ready;
      continue when is_there is null;
      if has_gates then
        gate := pgflowd._pass_gates(task_claim.flow_slug, queue.queue_name, array[ready], 1, given,
                                    met_needs);
        continue when gate.may_begin = '{}';
        are_limited := gate.are_limited;
      end if;
      select begun.* into task from pgflowd._start_each(
        task_claim.flow_slug, queue.queue_name, queue.step_slug, array[ready], person,
        clock_timestamp(), task_claim.lease, steps, are_limited) as begun;
      if task.token is not null then
        perform pgflowd._make_visible(queue.queue_name, array[ready], task.lease_until,
                                      extend => true);
        perform pgflowd._close_older(task_claim.flow_slug, array[ready], person);
        perform pgflowd._record_action(
          'task_claim', task_claim.actor, run_id => task.run_id, step_slug => task.step_slug,
          task_index => task.task_index,
          data => jsonb_build_object('token', task.token, 'lease_until', task.lease_until));
        return next task;
        return;
      end if;
    end loop;
  end loop;
end $$;
