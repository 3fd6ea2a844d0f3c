-- _await_ends(elements): of these suspended tasks those that wait for the end of runs: the sweep is to tell
-- them of each. What is left of an earlier wait, which timed out, is no longer waited for.
-- Called by: _suspend.   Locks: awaits; the caller holds the tasks.
create or replace function pgflowd._await_ends(elements pgflowd.element[])
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  delete from pgflowd.awaits as old
   using unnest(_await_ends.elements) as element
   where element.outcome = 'suspended' and element.standing = 'live'
     and element.wait ->> 'kind' = 'runs'
     and old.run_id = element.run_id and old.step_slug = element.step_slug
     and old.task_index = element.task_index;
  insert into pgflowd.awaits (awaited, run_id, step_slug, task_index)
  select distinct awaited.run_id::uuid, element.run_id, element.step_slug, element.task_index
    from unnest(_await_ends.elements) as element
   cross join lateral jsonb_array_elements_text(element.wait -> 'runs') as awaited (run_id)
   where element.outcome = 'suspended' and element.standing = 'live'
     and element.wait ->> 'kind' = 'runs';
end $$;
