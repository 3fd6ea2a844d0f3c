-- _put_aside(run_ids, step_slugs, task_indexes, kind, rests, why): lets these queued tasks wait without
-- being executed: each loses its message, and a row of `waits` says what for. A caller with an old
-- snapshot gets 40001 for one that has begun to wait meanwhile.
-- Called by: _put_run_aside, _quarantine.
-- Locks: messages, waits; the caller holds the tasks.
create or replace function pgflowd._put_aside(
  run_ids uuid[], step_slugs text[], task_indexes int[], kind text, rests interval[] default null,
  why text default null)
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  queue record;
begin
  for queue in
    with held as (
      select given.*, task.flow_slug, task.message_id, task.queue_name
        from unnest(_put_aside.run_ids, _put_aside.step_slugs, _put_aside.task_indexes,
                    _put_aside.rests)
             with ordinality as given (run_id, step_slug, task_index, rest, ord)
       cross join lateral (
         select one.flow_slug, one.message_id, one.queue_name as queue_name
           from pgflow.step_tasks as one
          where one.run_id = given.run_id and one.step_slug = given.step_slug
            and one.task_index = given.task_index offset 0) as task
    ), inserted as (
      insert into pgflowd.waits (run_id, step_slug, task_index, flow_slug, kind, rest, why)
      select held.run_id, held.step_slug, held.task_index, held.flow_slug, _put_aside.kind,
             held.rest, _put_aside.why
        from held order by held.ord
      on conflict on constraint waits_pkey do nothing
    )
    select held.queue_name as name, array_agg(held.message_id) as messages
      from held group by 1 order by 1
  loop
    execute format('delete from %s where msg_id = any ($1)', pgflowd._queue_table(queue.name)) using queue.messages;
  end loop;
end $$;
