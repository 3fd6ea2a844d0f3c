-- _pass_to_core(elements, outputs): lets the core do what the elements report; returns what the
-- tasks became, by their elements' places.
-- Called by: _report_all.
-- Locks: see _complete_tasks and _fail_tasks; messages. The caller holds runs and tasks.
create or replace function pgflowd._pass_to_core(elements pgflowd.element[], outputs jsonb[])
returns text[] language plpgsql set search_path = '', pg_temp as $$
declare
  became text[] := array_fill(null::text, array[cardinality(outputs)]);
  done record;
  statuses text[];
begin
  select array_agg(element.run_id) filter (where element.outcome = 'completed') as run_ids,
         array_agg(element.step_slug) filter (where element.outcome = 'completed') as step_slugs,
         array_agg(element.task_index) filter (where element.outcome = 'completed') as task_indexes,
         array_agg(element.ord) filter (where element.outcome = 'completed') as ords,
         count(*) filter (where element.outcome = 'completed' and element.ord = element.ordinality)
           = cardinality(outputs) as is_all,  -- then outputs, which may be large, are not copied
         bool_or(element.is_moved) as any_moved,
         bool_or(element.outcome in ('failed', 'timed_out', 'crashed')) as any_failed,
         bool_or(element.outcome = 'released') as any_released,
         bool_or(element.outcome = 'suspended') as any_suspended
    into done
    from unnest(elements) with ordinality as element
   where element.standing in ('live', 'late', 'revoked');
  if done.any_moved then
    perform pgflowd._restore_tasks(elements);
  end if;
  if done.any_suspended then  -- first: what ends a run or step below ends their waits
    became := pgflowd._suspend(elements, became);
  end if;
  if done.ords is not null then
    select array_agg(reported.status order by reported.ord) into statuses
      from pgflow._complete_tasks(
             done.run_ids, done.step_slugs, done.task_indexes,
             case when done.is_all then outputs
                  else array(select outputs[one.ord]
                               from unnest(done.ords) with ordinality as one (ord, place)
                              order by one.place) end) as reported;
    for i in 1 .. cardinality(done.ords) loop
      became[done.ords[i]] := statuses[i];
    end loop;
  end if;
  if done.any_failed then
    became := pgflowd._fail_reported(elements, became);
  end if;
  if done.any_released then
    became := pgflowd._requeue_released(elements, became);
  end if;
  return became;
end $$;
