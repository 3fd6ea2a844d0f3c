-- _fail_reported(elements, became): reports the failures among them to the core; returns
-- `became`, what tasks became by their elements' places, with these added.
-- Without `retry` the attempts are spent first; `delay` moves the message afterwards.
-- Called by: _pass_to_core.   Locks: see _fail_tasks; messages with a delay.
create or replace function pgflowd._fail_reported(elements pgflowd.element[], became text[])
returns text[] language plpgsql set search_path = '', pg_temp as $$
declare
  given record;
  ended record;
begin
  select array_agg(element.run_id) as run_ids,
         array_agg(element.step_slug) as step_slugs,
         array_agg(element.task_index) as task_indexes,
         array_agg(element.error_message) as error_messages,
         array_agg(element.ord) as ords,
         bool_or(element.standing = 'live' and not element.retry) as any_final,
         bool_or(element.standing = 'live' and element.delay is not null) as any_delayed
    into given
    from unnest(_fail_reported.elements) as element
   where element.outcome in ('failed', 'timed_out', 'crashed')
     and element.standing in ('live', 'late');
  if given.any_final then
    update pgflow.step_tasks as task
       set attempts_count = greatest(task.attempts_count, step.opt_max_attempts,
         case when step.opt_max_attempts is null then flow.opt_max_attempts end)
      from unnest(_fail_reported.elements) as element, pgflow.steps as step, pgflow.flows as flow
     where element.ord = any(given.ords) and element.standing = 'live' and not element.retry
       and task.run_id = element.run_id and task.step_slug = element.step_slug
       and task.task_index = element.task_index
       and step.flow_slug = task.flow_slug and step.step_slug = task.step_slug
       and flow.flow_slug = task.flow_slug;
  end if;
  for ended in
    select reported.ord, reported.status
      from pgflow._fail_tasks(given.run_ids, given.step_slugs, given.task_indexes,
                              given.error_messages) as reported
  loop
    became[given.ords[ended.ord]] := ended.status;
  end loop;
  if given.any_delayed then
    perform pgflowd._hide(array_agg(task.queue_name), array_agg(task.message_id),
                          array_agg(element.delay))
      from unnest(_fail_reported.elements) as element
      join pgflow.step_tasks as task
        on task.run_id = element.run_id and task.step_slug = element.step_slug
       and task.task_index = element.task_index
     where element.ord = any(given.ords) and element.standing = 'live'
       and element.delay is not null and task.status = 'queued';
  end if;
  return became;
end $$;
