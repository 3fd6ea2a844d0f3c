-- task_claim(flow_slug, lease, actor): a person takes the task of this flow that has been ready for longest;
-- no row if there is none. He sends no heartbeats: the task is his for the whole lease, 30 days at most,
-- and is queued again when that is over, the attempt unspent. The run's input comes with each task.
-- It looks at ten thousand messages.
-- PF002 for an unknown flow.
-- Called by: `pgflowd tasks claim`, applications.
-- Locks: the task, skipping locked ones; its attempts and message; see _person.
create or replace function pgflowd.task_claim(flow_slug text, lease interval, actor text)
returns setof pgflowd.claimed_task language plpgsql set search_path = '' as $$
declare
  steps constant text[] := array(select step.step_slug from pgflow.steps as step
                                  where step.flow_slug = task_claim.flow_slug);
  queue record;
  ready bigint;
  person uuid;
  task pgflowd.claimed_task;
begin
  if (task_claim.lease > interval '0' and task_claim.lease <= interval '30 days') is not true then
    raise exception 'a lease of % is not possible', coalesce(task_claim.lease::text, 'null')
      using errcode = '22023', hint = 'ask for more than nothing, and for 30 days at most';
  elsif not exists (select from pgflow.flows as flow where flow.flow_slug = task_claim.flow_slug) then
    raise exception 'there is no flow %', quote_literal(task_claim.flow_slug)
      using errcode = 'PF002', hint = 'deploy it with `pgflowd flows deploy`';
  end if;
  for queue in select known.queue_name, known.step_slug
                 from pgflowd._queues(task_claim.flow_slug) as known loop
    person := pgflowd._person(queue.queue_name, task_claim.actor);
    for ready in execute format(
      'select message.msg_id from pgmq.%1$I as message where message.vt <= $1'
      ' order by message.vt limit 10000', pgmq.format_table_name(queue.queue_name, 'q'))
      using clock_timestamp()
    loop
      select begun.* into task from pgflowd._start_each(
        task_claim.flow_slug, queue.queue_name, queue.step_slug, array[ready], person,
        clock_timestamp(), task_claim.lease, steps) as begun;
      if task.token is not null then
        perform pgflowd._make_visible(queue.queue_name, array[ready], task.lease_until, extend => true);
        perform pgflowd._close_older(task_claim.flow_slug, array[ready], person);
        return next task;
        return;
      end if;
    end loop;
  end loop;
end $$;
