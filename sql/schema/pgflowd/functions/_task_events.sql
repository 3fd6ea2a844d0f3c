-- _task_events(run_id, after, before, max_events): what happened to the tasks of a run: their attempts, their
-- waits, and the status of each task whose last attempt does not explain it. See run_timeline. No index has
-- attempts in the order of time, as reports would have to change it. So a part of them looks at the moments
-- of all, once, and at the rest of those that it returns alone; and of tasks at those that may be among them.
-- Called by: run_timeline.   Locks: nothing.
create or replace function pgflowd._task_events(
  run_id uuid, after timestamptz, before timestamptz, max_events int)
returns table (at timestamptz, event text, step_slug text, task_index int, token bigint, actor text,
               detail jsonb, rank int)
language sql stable set search_path = '', pg_temp as $$
  with part as materialized (
    select attempt.step_slug, attempt.task_index, attempt.token, one.at, one.word
      from pgflowd.attempts as attempt
     cross join lateral (values (attempt.started_at, 'started'), (attempt.ended_at, attempt.outcome))
             as one (at, word)
     where attempt.run_id = _task_events.run_id
       and one.at >= _task_events.after and one.at < _task_events.before
     order by one.at desc fetch first (_task_events.max_events) rows with ties
  ), task as (
    select one.*, last.token as last_token, last.at as last_at,
           coalesce(case one.status
             when 'completed' then last.outcome = 'completed'
             when 'failed' then last.outcome in ('failed', 'timed_out', 'crashed', 'stalled')
             when 'started' then last.token is not null and coalesce(last.outcome = 'late', true)
             when 'queued' then last.outcome in ('failed', 'timed_out', 'crashed', 'stalled',
                                                 'released', 'suspended', 'lost') or last.token is null
             end, false) as is_explained
      from (values (null::timestamptz)) as missing (last_requeued_at)
     cross join lateral (
       select known.step_slug, known.task_index, known.status, known.queued_at, known.started_at,
              known.completed_at, known.failed_at, known.error_message, last_requeued_at
         from pgflow.step_tasks as known where known.run_id = _task_events.run_id offset 0) as one
      left join lateral (
       select attempt.token, attempt.outcome,
              coalesce(attempt.ended_at, attempt.started_at) as at
         from pgflowd.attempts as attempt
        where attempt.run_id = _task_events.run_id and attempt.step_slug = one.step_slug
          and attempt.task_index = one.task_index
        order by attempt.token desc limit 1) as last on true
     where case one.status when 'completed' then one.completed_at when 'failed' then one.failed_at
                           else 'infinity' end
           >= (select case when count(*) >= _task_events.max_events then min(part.at)
                           else _task_events.after end from part)
  )
  select part.at, 'task:' || part.word, part.step_slug, part.task_index, part.token,
         (select worker.function_name from pgflow.workers as worker
           where worker.worker_id = attempt.worker_id
             and pgflowd._person_id(worker.queue_name, worker.function_name) = worker.worker_id),
         jsonb_build_object('attempt', attempt.attempt)
         || case when part.word = 'started' then jsonb_build_object('worker_id', attempt.worker_id)
                 else jsonb_build_object(
                   'error_type', attempt.error_type, 'error', attempt.error_message,
                   'exit_code', attempt.exit_code, 'exit_signal', attempt.exit_signal,
                   'final', case when part.word in ('failed', 'timed_out', 'crashed', 'stalled')
                                 then attempt.is_final end) end,
         case when part.word = 'started' then 7 when part.at = attempt.started_at then 8 else 3 end
    from part
   cross join lateral (
     select one.*, (
              select true from pgflow.step_tasks as task
               where task.run_id = one.run_id and task.step_slug = one.step_slug
                 and task.task_index = one.task_index and task.status = 'failed'
                 and not exists (
                   select from pgflowd.attempts as later
                    where later.run_id = one.run_id and later.step_slug = one.step_slug
                      and later.task_index = one.task_index and later.token > one.token)) as is_final
       from pgflowd.attempts as one where one.token = part.token offset 0) as attempt
  union all
  select case task.status when 'completed' then task.completed_at when 'failed' then task.failed_at
              when 'started' then greatest(task.started_at, task.last_at)
              when 'queued' then greatest(task.queued_at, task.last_requeued_at, task.last_at)
              else coalesce((select one.skipped_at
                               from (values (null::timestamptz)) as missing (skipped_at)
                              cross join lateral (
                                select skipped_at from pgflow.step_states as state
                                 where state.run_id = _task_events.run_id
                                   and state.step_slug = task.step_slug) as one),
                            task.queued_at) end,
         'task:' || task.status, task.step_slug, task.task_index, null, null,
         jsonb_build_object('error', task.error_message,
                            'final', case when task.status = 'failed' then true end),
         case when task.status in ('completed', 'failed') then 3 else 8 end
    from task where not task.is_explained
  union all
  select wait.since, 'task:waiting', wait.step_slug, wait.task_index, null, null,
         jsonb_build_object('kind', wait.kind, 'name', wait.name, 'until', wait.due_at,
                            'why', wait.why), 8
    from pgflowd.waits as wait where wait.run_id = _task_events.run_id
  union all
  select kept.saved_at, 'task:freed', kept.step_slug, kept.task_index, null, kept.data ->> 'by',
         jsonb_build_object('name', kept.name, 'reason', kept.data ->> 'reason', 'how', (
           select word from unnest('{got,slept,ended,timeout}'::text[]) as word
            where kept.data ? word limit 1)), 3
    from pgflowd.checkpoints as kept
   where kept.run_id = _task_events.run_id and kept.name ~ '^(sleep|signal|runs) '
     and kept.token = 0;
$$;
