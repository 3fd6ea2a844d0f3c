-- _recover_stalled(slack): queues started tasks again whose timeout (the step's, else the flow's)
-- passed more than `slack` ago, in open runs and steps only. A task whose lease goes on is left alone: a
-- person may have taken it for days. One that was queued again three
-- times is given up: it is stamped, its message is archived, and its status stays.
-- Two calls at once share the work; a task that is being reported is skipped.
-- Called by: recover_stalled_tasks, requeue_stalled_tasks.
-- Locks: tasks by slug and index within each flow (skips locked), then messages.
create or replace function pgflow._recover_stalled(slack interval, out requeued int, out queues int)
language plpgsql set search_path = '', pg_temp as $$
#variable_conflict use_column
declare
  one_flow text;
  found_tasks record;
begin
  requeued := 0;
  queues := 0;
  for one_flow in select flow.flow_slug from pgflow.flows as flow order by flow.flow_slug loop
    with stalled as materialized (
      select task.*
        from pgflow._started_tasks(one_flow) as suspect
       cross join lateral (
         select from pgflow.runs as one
          where one.run_id = suspect.run_id and one.status = 'started' offset 0) as run
       cross join lateral (
         select from pgflow.step_states as one
          where one.run_id = suspect.run_id and one.step_slug = suspect.step_slug
            and one.status = 'started' offset 0) as state
        join pgflow.steps as step
          on step.flow_slug = suspect.flow_slug and step.step_slug = suspect.step_slug
        join pgflow.flows as flow on flow.flow_slug = suspect.flow_slug
       cross join lateral (
         select one.run_id, one.step_slug, one.task_index, one.requeued_count < 3 as again
           from pgflow.step_tasks as one
          where one.run_id = suspect.run_id and one.step_slug = suspect.step_slug
            and one.task_index = suspect.task_index
            and one.status = 'started' and one.permanently_stalled_at is null
            and one.started_at
                < now() - make_interval(secs => coalesce(step.opt_timeout, flow.opt_timeout)) - slack
            and not exists (
              select from pgflowd.attempts as attempt
               where attempt.run_id = one.run_id and attempt.step_slug = one.step_slug
                 and attempt.task_index = one.task_index and attempt.ended_at is null
                 and attempt.lease_until > now())
         offset 0 for no key update skip locked) as task
    ), changed as (
      update pgflow.step_tasks as task
         set status = case when stalled.again then 'queued' else task.status end,
             started_at = case when not stalled.again then task.started_at end,
             last_worker_id = case when not stalled.again then task.last_worker_id end,
             requeued_count = task.requeued_count + stalled.again::int,
             last_requeued_at = case when stalled.again then now() else task.last_requeued_at end,
             permanently_stalled_at = case when not stalled.again then now() end
        from stalled
       where task.run_id = stalled.run_id and task.step_slug = stalled.step_slug
         and task.task_index = stalled.task_index
      returning task.message_id, stalled.again
    )
    select count(*) filter (where changed.again)::int as requeued,
           array_agg(changed.message_id) filter (where changed.again) as visible,
           array_agg(changed.message_id) filter (where not changed.again) as given_up
      into found_tasks from changed;

    if found_tasks.visible is not null then
      perform pgflow.set_vt_batch(pgflow._queue_name(one_flow), found_tasks.visible,
                                  array_fill(0, array[found_tasks.requeued]));
      perform pg_notify('pgflowd', pgflow._queue_name(one_flow));
      requeued := requeued + found_tasks.requeued;
      queues := queues + 1;
    end if;
    if found_tasks.given_up is not null then
      perform pgflow._archive(array_fill(one_flow, array[cardinality(found_tasks.given_up)]),
                              found_tasks.given_up);
    end if;
  end loop;
end $$;
