-- _suspend(elements, became): lets the suspended tasks among them wait: each is queued as if it had
-- not been claimed, its attempt unspent, its message deleted, and a row of `waits` says what it
-- waits for. `message_id` stays, so the change writes no index. A wait for a signal that came before
-- gets it here, who waits for the end of runs is told by the sweep, and of a task that is handed on all
-- workers of its queue hear. In a paused run the time of a wait stands still from the beginning. Returns
-- `became`, what tasks became by their elements' places, with these added.
-- The moment is that of the clock, not of the transaction, which may be old: no sleep ends early.
-- Called by: _pass_to_core.   Locks: tasks, messages, waits, signals, awaits;
-- the caller holds runs and tasks.
create or replace function pgflowd._suspend(elements pgflowd.element[], became text[])
returns text[] language plpgsql set search_path = '', pg_temp as $$
declare
  suspended record;
  queue record;
begin
  with requeued as (
    update pgflow.step_tasks as task
       set status = 'queued', started_at = null, last_worker_id = null,
           attempts_count = greatest(task.attempts_count - 1, 0)
      from unnest(elements) as element
     where element.outcome = 'suspended' and element.standing = 'live'
       and task.run_id = element.run_id and task.step_slug = element.step_slug
       and task.task_index = element.task_index
    returning element.ord, element.wait, task.run_id, task.step_slug, task.task_index,
              task.flow_slug, task.message_id, task.queue_name as queue
  ), inserted as (
    insert into pgflowd.waits as kept (run_id, step_slug, task_index, flow_slug, kind, name,
                                       checkpoint, due_at, rest, why)
    select requeued.run_id, requeued.step_slug, requeued.task_index, requeued.flow_slug,
           requeued.wait ->> 'kind',
           case requeued.wait ->> 'kind' when 'signal' then requeued.wait ->> 'name'
             when 'need' then pgflowd._joined_needs(requeued.wait -> 'needs') end,
           requeued.wait ->> 'checkpoint',
           case when not is_paused.now then due.at end,
           case when is_paused.now and due.at is not null
                then greatest(due.at - clock_timestamp(), interval '0') end,
           requeued.wait ->> 'why'
      from requeued
     cross join lateral (
       select coalesce((requeued.wait ->> 'until')::timestamptz,
                       clock_timestamp()
                       + make_interval(secs => (requeued.wait ->> 'in_s')::float8)) as at
       offset 0) as due
     cross join lateral (
       select exists (select from pgflowd.runs as run
                       where run.run_id = requeued.run_id and run.paused_at is not null) as now
       offset 0) as is_paused
     order by requeued.ord
    returning kept.run_id, kept.kind, kept.name, kept.due_at
  )
  select array_agg(requeued.ord) as ords, array_agg(requeued.queue) as queues,
         array_agg(requeued.message_id) as messages,
         (select min(inserted.due_at) from inserted) as due_at,
         (select array_agg(inserted.run_id) from inserted where inserted.kind = 'signal') as runs,
         (select array_agg(inserted.name) from inserted where inserted.kind = 'signal') as names,
         (select bool_or(inserted.kind = 'need') from inserted) as are_handed_on,
         (select bool_or(inserted.kind = 'runs') from inserted) as any_runs
    into suspended from requeued;
  if suspended.ords is null then
    return became;
  end if;
  for i in 1 .. cardinality(suspended.ords) loop
    became[suspended.ords[i]] := 'queued';
  end loop;
  for queue in
    select held.name, array_agg(held.message) as messages
      from unnest(suspended.queues, suspended.messages) as held (name, message)
     group by 1 order by 1
  loop
    execute format('delete from %s where msg_id = any ($1)', pgflowd._queue_table(queue.name)) using queue.messages;
    perform pgflowd._wake(queue.name) where suspended.are_handed_on;
  end loop;
  if suspended.names is not null
     and pgflowd._deliver_signals(suspended.runs, suspended.names) > 0 then
    suspended.due_at := now();
  end if;
  if suspended.any_runs then
    perform pgflowd._await_ends(elements);
    suspended.due_at := now();
  end if;
  perform pgflowd._notify_due(suspended.due_at) where suspended.due_at is not null;
  return became;
end $$;
