-- _fail_tasks(run_ids, step_slugs, task_indexes, error_messages): records failed attempts of
-- distinct tasks, of any runs and flows. Tasks with attempts left are queued again, in a fixed
-- number of statements; each step that has a task without one ends by itself. A task that
-- recovery gave up has no attempt left, and no message by which it could be claimed. A task without
-- attempts of a step that settles completes (_settle_tasks). Returns each task's status by position.
-- Called by: fail_task, pgflowd._fail_reported.
-- Locks: states and tasks, then messages; the caller has locked the runs, ascending.
create or replace function pgflow._fail_tasks(
  run_ids uuid[], step_slugs text[], task_indexes int[], error_messages text[])
returns table (ord int, run_id uuid, step_slug text, task_index int, status text)
language plpgsql set search_path = '', pg_temp as $$
#variable_conflict use_column
declare
  outcome record;
  e int;
begin
  with reported as materialized (
    select found.*, error_messages[found.ord] as error_message,
           found.attempts_count < coalesce(step.opt_max_attempts, flow.opt_max_attempts) as again,
           coalesce(step.opt_base_delay, flow.opt_base_delay) as base_delay, step.settles
      from pgflow._find_reported_tasks(
             _fail_tasks.run_ids, _fail_tasks.step_slugs, _fail_tasks.task_indexes) as found
      join pgflow.steps as step
        on step.flow_slug = found.flow_slug and step.step_slug = found.step_slug
      join pgflow.flows as flow on flow.flow_slug = found.flow_slug
  ), failed as (
    update pgflow.step_tasks as task
       set status = case when retried.yes and task.permanently_stalled_at is null
                         then 'queued' else 'failed' end,
           started_at = case when not retried.yes or task.permanently_stalled_at is not null
                             then task.started_at end,
           failed_at = case when not retried.yes or task.permanently_stalled_at is not null
                            then greatest(now(), task.started_at) end,
           error_message = reported.error_message
      from reported, lateral (select reported.effect = 'act' and reported.again) as retried (yes)
     where (reported.effect = 'act'
            or (reported.effect = 'run_failed' and reported.task_status = 'started'))
       and task.run_id = reported.run_id and task.step_slug = reported.step_slug
       and task.task_index = reported.task_index
       and task.status = 'started'  -- tested again under the lock: a recovery may have come first
       and not (reported.settles and reported.effect = 'act'
                and (not reported.again or task.permanently_stalled_at is not null))
    returning task.flow_slug, task.message_id, task.status, task.attempts_count,
              task.requeued_count, reported.ord, reported.effect, reported.base_delay
  ), archived as (
    select failed.flow_slug, failed.message_id from failed where failed.status = 'failed'
    union all
    select reported.flow_slug, reported.message_id from reported
     where reported.effect = 'late'
        or (reported.effect = 'run_failed' and reported.task_status <> 'started')
  )
  select array_agg(failed.flow_slug) filter (where failed.status = 'queued') as flows,
         array_agg(failed.message_id) filter (where failed.status = 'queued') as messages,
         array_agg(pgflow.calculate_retry_delay(failed.base_delay, failed.attempts_count))
           filter (where failed.status = 'queued') as delays,
         array_agg(failed.requeued_count = 0) filter (where failed.status = 'queued') as are_unread,
         (select array_agg(archived.flow_slug) from archived) as archived_flows,
         (select array_agg(archived.message_id) from archived) as archived_messages,
         array_agg(failed.ord order by failed.ord)
           filter (where failed.status = 'failed' and failed.effect = 'act') as exhausted,
         (select array_agg(reported.ord) from reported
           where reported.settles and reported.effect = 'act'
             and reported.ord not in (select one.ord from failed as one)) as settled
    into outcome from failed;

  foreach e in array coalesce(outcome.exhausted, '{}') loop
    perform pgflow._exhaust_step(_fail_tasks.run_ids[e], _fail_tasks.step_slugs[e], error_messages[e]);
  end loop;
  if outcome.settled is not null then
    perform pgflow._settle_tasks(
      array(select _fail_tasks.run_ids[ord] from unnest(outcome.settled) as ord),
      array(select _fail_tasks.step_slugs[ord] from unnest(outcome.settled) as ord),
      array(select _fail_tasks.task_indexes[ord] from unnest(outcome.settled) as ord),
      array(select error_messages[ord] from unnest(outcome.settled) as ord));
  end if;
  if outcome.messages is not null then
    perform pgflow._hide(outcome.flows, outcome.messages, outcome.delays, outcome.are_unread);
  end if;
  if outcome.archived_messages is not null then
    perform pgflow._archive(outcome.archived_flows, outcome.archived_messages);
  end if;

  return query
    select * from pgflow._task_statuses(_fail_tasks.run_ids, _fail_tasks.step_slugs, _fail_tasks.task_indexes);
end $$;
