-- _pass_to_core(elements, outputs): lets the foreign core do what the elements report, one by one;
-- returns what the tasks became, by their elements' places.
-- Called by: _report_all.   Locks: see the core; messages. The caller holds runs, states and tasks.
create or replace function pgflowd._pass_to_core(elements pgflowd.element[], outputs jsonb[])
returns text[] language plpgsql set search_path = '', pg_temp
set plan_cache_mode = force_generic_plan as $$
declare
  became text[] := array_fill(null::text, array[cardinality(outputs)]);
  element pgflowd.element;
begin
  perform pgflowd._restore_tasks(elements);
  foreach element in array elements loop
    continue when element.standing not in ('live', 'late');
    if element.outcome = 'completed' then
      perform pgflow.complete_task(element.run_id, element.step_slug, element.task_index,
                                   outputs[element.ord]);
    elsif element.outcome not in ('released', 'suspended') then
      perform pgflowd._fail_reported(element);
    end if;
    became[element.ord] := (
      select task.status from pgflow.step_tasks as task
       where task.run_id = element.run_id and task.step_slug = element.step_slug
         and task.task_index = element.task_index);
  end loop;
  return pgflowd._suspend(elements, pgflowd._requeue_released(elements, became));
end $$;
