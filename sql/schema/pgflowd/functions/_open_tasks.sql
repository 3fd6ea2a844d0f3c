-- _open_tasks(of_run, of_flow, statuses, max_rows, needs): returns the open tasks of a run, or those of one
-- flow, or (null) of all, that may have one of these statuses; of a run at most ten thousand. With `needs`
-- only those that wait for a worker that has all of these, and maybe more. Without a run they
-- are found through what waits, the oldest first, and through the queues, at most ten thousand messages
-- of each: no index knows which tasks are open. `visible_at` is that of the message.
-- What waits is taken in its order whatever the statistics say, hence no sort and no bitmap.
-- Called by: list_tasks.   Locks: nothing.
create or replace function pgflowd._open_tasks(
  of_run uuid, of_flow text, statuses text[], max_rows int, needs text[] default null)
returns table (run_id uuid, step_slug text, task_index int, visible_at timestamptz)
language plpgsql stable set search_path = '', pg_temp
set jit = off set enable_sort = off set enable_bitmapscan = off as $$
#variable_conflict use_column
declare
  may_wait constant boolean :=
    _open_tasks.statuses is null or _open_tasks.statuses && '{waiting,paused,quarantined}';
  only_waits constant boolean := _open_tasks.needs is not null
                                 or coalesce(_open_tasks.statuses <@ '{waiting,paused,quarantined}', false);
  found record;
  flows constant text[] := case when _open_tasks.of_flow is not null
                                then pgflowd.flows_of(_open_tasks.of_flow) end;
begin
  if _open_tasks.of_run is not null and not only_waits then
    for found in
      select to_regclass(pgflowd._queue_table(task.queue_name)) as messages,
             array_agg(task.step_slug) as steps, array_agg(task.task_index) as indexes,
             array_agg(task.message_id) as message_ids
        from (select one.queue_name as queue_name, one.step_slug, one.task_index,
                     one.message_id
                from pgflow.step_tasks as one
               where one.run_id = _open_tasks.of_run and one.status in ('queued', 'started')
               order by one.step_slug, one.task_index limit 10000) as task
       group by 1
    loop
      continue when found.messages is null;
      return query execute format($query$
        select $1, task.step_slug, task.task_index,
               (select message.vt::timestamptz from %s as message
                 where message.msg_id = task.message_id)
          from unnest($2, $3, $4) as task (step_slug, task_index, message_id)
        $query$, found.messages)
        using _open_tasks.of_run, found.steps, found.indexes, found.message_ids;
    end loop;
    return;
  end if;
  for found in
    select flow.flow_slug, queue.queue_name,
           to_regclass(pgflowd._queue_table(queue.queue_name)) as messages
      from pgflow.flows as flow
     cross join lateral pgflowd._queues(flow.flow_slug) as queue
     where not only_waits and (flows is null or flow.flow_slug = any (flows))
  loop
    continue when found.messages is null;
    return query execute format($query$
      select task.run_id, task.step_slug, task.task_index, message.vt::timestamptz
        from (select one.msg_id, one.vt from %s as one order by one.msg_id limit 10000) as message
       cross join lateral (
         select one.run_id, one.step_slug, one.task_index, one.status
           from pgflow.step_tasks as one
          where one.flow_slug = $1 and one.message_id = message.msg_id offset 0) as task
       where task.status in ('queued', 'started')
      $query$, found.messages) using found.flow_slug;
  end loop;
  return query
    (select wait.run_id, wait.step_slug, wait.task_index, null::timestamptz
       from pgflowd.waits as wait
      where wait.run_id = _open_tasks.of_run
        and (_open_tasks.needs is null
             or wait.kind = 'need' and string_to_array(wait.name, ',') @> _open_tasks.needs)
      order by wait.nr limit _open_tasks.max_rows)
     union all
    select wait.run_id, wait.step_slug, wait.task_index, null::timestamptz
      from pgflow.flows as flow
     cross join lateral (
       select one.run_id, one.step_slug, one.task_index from pgflowd.waits as one
        where one.flow_slug = flow.flow_slug
          and (_open_tasks.needs is null
               or one.kind = 'need' and string_to_array(one.name, ',') @> _open_tasks.needs)
        order by one.nr limit _open_tasks.max_rows) as wait
     where may_wait and _open_tasks.of_run is null
       and (flows is null or flow.flow_slug = any (flows));
end $$;
