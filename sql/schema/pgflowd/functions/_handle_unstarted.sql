-- _handle_unstarted(flow_slug, queue_name, msg_ids): deals with messages that were read but whose
-- tasks did not start, so that none is in the way of the next claim.
--   lease lapsed                      the task is queued again; the claim may start it now, unless it
--                                     has stalled so often that it is left alone for a while
--   no open task of any flow          archived: it came from elsewhere, or too late; a notice,
--                                     PF010, has their number as its detail
--   failed by this claim              left alone: its next attempt, if any, has its time
--   its run is paused                 put aside, with other queued tasks of that run
--   queued after now()                returned as `young`: the claim makes it visible at its end
--   queued in the future              hidden until then: the server's clock was set back
--   locked by another transaction     visible again in a second
--   lease alive                       hidden until the lease ends
--   crash_limit reached, or upstream's    hidden for the flow's longest timeout; sweeps decide
-- Flows whose slugs differ only in case share a queue, so tasks of all of them count.
-- Called by: claim.
-- Locks: tasks, skipping locked ones; their attempts; queue rows it read; paused runs, skipping locked
-- ones, and their tasks and messages; waits.
create or replace function pgflowd._handle_unstarted(
  flow_slug text, queue_name text, msg_ids bigint[],
  out requeued bigint[], out young bigint[])
language plpgsql set search_path = '', pg_temp as $$
declare
  lapsed record;
  left_alone bigint[];
  paused uuid;
  one record;
  archived bigint;
begin
  select array_agg(free.run_id) as run_ids,
         array_agg(free.step_slug) as step_slugs,
         array_agg(free.task_index) as task_indexes,
         array_agg(free.message_id) as message_ids
    into lapsed
    from (select task.run_id, task.step_slug, task.task_index, task.message_id
            from pgflow.step_tasks as task
           where task.flow_slug = _handle_unstarted.flow_slug
             and task.message_id = any(_handle_unstarted.msg_ids) and task.status = 'started'
             and exists (select from pgflowd.attempts as attempt
                          where attempt.run_id = task.run_id and attempt.step_slug = task.step_slug
                            and attempt.task_index = task.task_index and attempt.ended_at is null
                            and attempt.lease_until < clock_timestamp())
             for no key update skip locked) as free;
  if lapsed.run_ids is not null then
    select array_agg(back.message_id) into requeued
      from pgflowd._requeue_stalled(lapsed.run_ids, lapsed.step_slugs, lapsed.task_indexes,
                                    'its lease lapsed', true, show => false) as back;
    left_alone := array(
      select task.message_id from pgflow.step_tasks as task
       where task.flow_slug = _handle_unstarted.flow_slug and task.status = 'queued'
         and task.message_id = any (lapsed.message_ids)
         and task.message_id <> all (coalesce(requeued, '{}')));
  end if;

  for paused in  -- of each at most 5,000 tasks: a claim takes no longer than a fifth of a second
    select run.run_id from pgflow.runs as run
     where run.run_id = any (array(
             select task.run_id from pgflow.step_tasks as task
               join pgflowd.runs as ours on ours.run_id = task.run_id and ours.paused_at is not null
              where task.flow_slug = _handle_unstarted.flow_slug
                and task.message_id = any (_handle_unstarted.msg_ids)
                and task.status = 'queued'))
       and run.status = 'started'
     order by run.run_id for no key update skip locked
  loop
    perform pgflowd._put_run_aside(paused, _handle_unstarted.msg_ids, 5000)
      where pgflowd._is_paused(paused);
  end loop;

  for one in
    with known as (
      select task.message_id, task.status, task.queued_at, lease.lease_until, lease.has_failed,
             run.status = 'started' and state.status = 'started'
             and task.status not in ('completed', 'failed', 'skipped', 'cancelled') as is_open
        from pgflow.flows as flow
        join pgflow.step_tasks as task
          on task.flow_slug = flow.flow_slug and task.message_id = any(_handle_unstarted.msg_ids)
        join pgflow.runs as run on run.run_id = task.run_id
        join pgflow.step_states as state
          on state.run_id = task.run_id and state.step_slug = task.step_slug
        left join lateral (
          select max(attempt.lease_until) filter (where attempt.ended_at is null) as lease_until,
                 bool_or(attempt.started_at = now() and attempt.ended_at is not null) as has_failed
            from pgflowd.attempts as attempt
           where attempt.run_id = task.run_id and attempt.step_slug = task.step_slug
             and attempt.task_index = task.task_index and attempt.attempt = task.attempts_count
             and attempt.worker_id = coalesce(task.last_worker_id, attempt.worker_id)) as lease on true
       where (flow.flow_slug = _handle_unstarted.flow_slug
              or lower(flow.flow_slug collate "C")
                 = lower(_handle_unstarted.queue_name collate "C"))
         and lower(task.queue_name collate "C")
             = lower(_handle_unstarted.queue_name collate "C")
    ), sorted as (
      select message.msg_id,
             case
               when known.is_open is not true then 'foreign'
               when message.msg_id = any(requeued) then 'requeued'
               when known.has_failed then 'failed'
               when message.msg_id = any(left_alone) then 'left alone'
               when known.status = 'queued' and known.queued_at > clock_timestamp() then 'future'
               when known.status = 'queued' and known.queued_at > now() then 'young'
               when known.status = 'queued' then 'locked'
               when known.lease_until >= clock_timestamp() then 'leased'
               when message.msg_id = any(lapsed.message_ids) then 'stalled'
               when known.lease_until is not null then 'locked'
               else 'stalled'
             end as kind,
             known.lease_until, known.queued_at
        from unnest(_handle_unstarted.msg_ids) as message (msg_id)
        left join known on known.message_id = message.msg_id and known.is_open
    )
    select sorted.kind, array_agg(sorted.msg_id) as msg_ids,
           max(sorted.lease_until) as lease_until, max(sorted.queued_at) as queued_at
      from sorted group by sorted.kind
  loop
    case one.kind
      when 'foreign' then
        archived := pgflow._archive(queue_name, one.msg_ids);
        if archived > 0 then
          raise notice 'messages without an open task were archived'
            using errcode = 'PF010', detail = archived::text;
        end if;
      when 'young' then young := one.msg_ids;
      when 'future' then perform pgflowd._make_visible(queue_name, one.msg_ids, one.queued_at);
      when 'locked' then perform pgflowd._make_visible(
        queue_name, one.msg_ids, clock_timestamp() + interval '1 s');
      when 'leased' then perform pgflowd._make_visible(
        queue_name, one.msg_ids, one.lease_until, extend => true);
      when 'stalled' then perform pgflowd._make_visible(
        queue_name, one.msg_ids, clock_timestamp() + make_interval(
          secs => pgflowd._longest_timeout(flow_slug) + 2), extend => true);
      else null;
    end case;
  end loop;
end $$;
