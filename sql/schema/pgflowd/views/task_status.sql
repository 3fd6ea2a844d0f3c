-- task_status: each task with its status as people know it. `since` is when that began, as far as it is
-- known; `until` the end of the wait, the lease or the delay; `kind`, `name` and `why` say what it
-- waits for; `stalls` how often it has stalled, in all and in a row. Ask for one run: a task that is queued costs a look into its queue.
create or replace view pgflowd.task_status as
  select task.run_id, task.step_slug, task.task_index, task.flow_slug,
         pgflowd._task_status(task.status, wait.kind,
                              coalesce(held.lease_until, message.visible_at), now()) as status,
         task.attempts_count as attempts, wait.kind, wait.name, wait.why,
         coalesce(wait.since, held.started_at, task.completed_at, task.failed_at, task.queued_at)
           as since,
         case when task.status not in ('queued', 'started') then null
              when wait.run_id is not null then wait.due_at
              else coalesce(held.lease_until, message.visible_at) end as until,
         (select count(*)::int from pgflowd.attempts as attempt
           where attempt.run_id = task.run_id and attempt.step_slug = task.step_slug
             and attempt.task_index = task.task_index and attempt.outcome = 'stalled') as stalls,
         pgflowd._stalled_in_a_row(task.run_id, task.step_slug, task.task_index) as stalls_in_a_row
    from pgflow.step_tasks as task
    left join pgflowd.waits as wait
      on wait.run_id = task.run_id and wait.step_slug = task.step_slug
     and wait.task_index = task.task_index
    left join lateral (
      select one.started_at, one.lease_until from pgflowd.attempts as one
       where one.run_id = task.run_id and one.step_slug = task.step_slug
         and one.task_index = task.task_index and one.ended_at is null
         and one.attempt = task.attempts_count and task.status = 'started'
       order by one.token desc limit 1) as held on true
    left join lateral (
      select shown.visible_at
        from pgflowd._visible_at(
               case when task.status in ('queued', 'started') and wait.run_id is null
                         and held.lease_until is null
                    then task.queue_name end, array[task.message_id]) as shown) as message
      on true;
