-- _check_cycle(parent_id, child_id, singleton_key, on_conflict, after): raises where a child would wait for a
-- run which waits for it as soon as the parent does: for the parent itself, a run above it, or one that waits
-- for the end of one of these, directly or through others (of which it looks at a thousand). PF006 if that
-- one has the singleton key, to wait for it or to replace it; PF007 if it is one of `after`.
-- Called by: start_child.   Locks: nothing.
create or replace function pgflowd._check_cycle(
  parent_id uuid, child_id uuid, singleton_key text, on_conflict text, after uuid[])
returns void language plpgsql stable set search_path = '', pg_temp as $$
declare
  holder constant uuid := (
    select run.run_id from pgflowd.runs as run
     where run.singleton_key = _check_cycle.singleton_key and run.holds_key
       and _check_cycle.on_conflict in ('wait', 'replace'));
  found_one uuid;
begin
  if holder is null and after = '{}' then
    return;
  end if;
  with recursive waiter as (
    select parent_id as id
    union
    select next.id
      from waiter
     cross join lateral (
       select run.parent_run_id as id from pgflowd.runs as run
        where run.run_id = waiter.id and run.parent_run_id is not null
       union all
       select one.run_id from pgflowd.awaits as one
        where one.awaited = waiter.id and one.has_completed is null) as next
  )
  select known.id into found_one from (select waiter.id from waiter limit 1000) as known
   where known.id = holder or known.id = any (after) order by known.id = holder desc nulls last limit 1;
  if found_one = holder then
    raise exception 'run % has the singleton key % itself: its child % could not begin before it ends', holder,
                    quote_literal(singleton_key), child_id
      using errcode = 'PF006', detail = holder,
            hint = 'give its children another key; or start the run by a Client, if nothing waits for it';
  elsif found_one is not null then
    raise exception 'run %, a child of run %, cannot begin after run %, which may wait for it', child_id,
                    parent_id, found_one
      using errcode = 'PF007', detail = found_one,
            hint = 'leave it out; or start the run by a Client, if nothing waits for it';
  end if;
end $$;
