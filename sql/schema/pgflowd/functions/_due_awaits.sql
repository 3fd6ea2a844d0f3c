-- _due_awaits(max_rows): the awaits that have been due for longest, and whose run is free: the awaited one
-- until its end is known, then the one that waits.
-- They are taken in their order whatever the statistics say, hence no sort and no bitmap.
-- Called by: postpone_due, _process_due_awaits.
-- Locks: the runs, their rows in pgflowd.runs, their flows, the awaits, in this order, skipping locked ones.
create or replace function pgflowd._due_awaits(max_rows int)
returns setof pgflowd.awaits language plpgsql set search_path = '', pg_temp set jit = off
  set enable_sort = off set enable_bitmapscan = off as $$
begin
  return query
    select held.*
      from (select one.*, case when one.has_completed is null then one.awaited else one.run_id end as busy_id
              from pgflowd.awaits as one where one.due_at <= now() order by one.due_at) as due
      left join lateral (
       select true as is_held, one.flow_slug from pgflow.runs as one
        where one.run_id = due.busy_id offset 0 for no key update skip locked) as run on true
      left join lateral (
       select one.state from pgflowd.runs as one
        where one.run_id = due.busy_id offset 0 for update skip locked) as ours on true
      left join lateral (
       select true as is_held from pgflow.flows as one
        where one.flow_slug = run.flow_slug offset 0 for share skip locked) as flow on true
     cross join lateral (
       select one.* from pgflowd.awaits as one
        where one.awaited = due.awaited and one.run_id = due.run_id
          and one.step_slug = due.step_slug and one.task_index = due.task_index
          and one.due_at <= now() and one.has_completed is not distinct from due.has_completed
       offset 0 for update skip locked) as held
     where case when run.is_held then flow.is_held
                else coalesce(ours.state <> 'started',  -- it cannot begin meanwhile
                              not exists (select from pgflowd.runs as one where one.run_id = due.busy_id))
                     and not exists (select from pgflow.runs as one where one.run_id = due.busy_id) end
     limit max_rows;
end $$;
