-- _put_run_aside(run_id, read, max_tasks): lets queued tasks of a paused run wait for its resume, so many
-- at most, with what is left of their delay. `read`: messages that a claim has read, and so are due,
-- though hidden. A task that is locked is left alone: a claim meets it again.
-- Called by: _handle_unstarted, pause.
-- Locks: tasks, skipping locked ones; messages, waits; the caller holds the run.
create or replace function pgflowd._put_run_aside(
  run_id uuid, read bigint[] default '{}', max_tasks int default null)
returns void language plpgsql set search_path = '', pg_temp as $$
#variable_conflict use_column
declare
  queue record;
begin
  for queue in
    with free as (
      select task.step_slug, task.task_index, task.message_id,
             task.queue_name as queue_name
        from pgflow.step_tasks as task
       where task.run_id = _put_run_aside.run_id and task.status = 'queued'
         and not exists (select from pgflowd.waits as wait
                          where wait.run_id = task.run_id and wait.step_slug = task.step_slug
                            and wait.task_index = task.task_index)
       order by task.step_slug, task.task_index
       limit _put_run_aside.max_tasks
         for no key update of task skip locked
    )
    select free.queue_name as name, array_agg(free.step_slug) as steps,
           array_agg(free.task_index) as indexes, array_agg(free.message_id) as messages
      from free group by 1 order by 1
  loop
    perform pgflowd._put_aside(
      array_fill(_put_run_aside.run_id, array[cardinality(queue.steps)]),
      queue.steps, queue.indexes, 'paused',
      array(select case when held.msg_id = any (_put_run_aside.read) then interval '0'
                        else greatest(message.visible_at - clock_timestamp(), interval '0') end
              from unnest(queue.messages) with ordinality as held (msg_id, ord)
              left join pgflowd._visible_at(queue.name, queue.messages) as message
                on message.msg_id = held.msg_id
             order by held.ord));
  end loop;
end $$;
