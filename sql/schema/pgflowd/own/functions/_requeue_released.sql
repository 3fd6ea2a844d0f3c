-- _requeue_released(elements, became): queues the released tasks among them again, unspent; returns
-- `became`, what tasks became by their elements' places, with these added.
-- Called by: _report_all.   Locks: messages; the caller holds the tasks.
create or replace function pgflowd._requeue_released(elements pgflowd.element[], became text[])
returns text[] language plpgsql set search_path = '' as $$
declare
  released record;
begin
  for released in
    select element.ord, element.delay, task
      from unnest(_requeue_released.elements) as element
      join pgflow.step_tasks as task
        on task.run_id = element.run_id and task.step_slug = element.step_slug
       and task.task_index = element.task_index
     where element.outcome = 'released' and element.standing = 'live'
     order by task.queue_name, task.message_id
  loop
    perform pgflowd._put_back(released.task, (released.task).attempts_count,
                              coalesce(released.delay, interval '0'));
    became[released.ord] := 'queued';
  end loop;
  return became;
end $$;
