-- _due_runs(max_rows): the runs that have been due for longest, and are free: nobody deletes their flow just
-- now, nor has their lock, nor that of their singleton key, which is not asked for where the flow is locked,
-- and once for all who wait in line for it: that can take a millisecond (_add_lock). After 200 such keys
-- that are locked, only runs without a key are looked at.
-- They are taken in their order whatever the statistics say, hence no sort and no bitmap.
-- Called by: postpone_due, _process_due_runs.
-- Locks: the flows, the keys, the runs, their rows in pgflowd.runs, in this order, skipping locked ones.
create or replace function pgflowd._due_runs(max_rows int)
returns setof uuid language plpgsql set search_path = '', pg_temp set jit = off
  set enable_sort = off set enable_bitmapscan = off as $$
declare
  due record;
  busy text[] := '{}';
  found_rows int := 0;
begin
  for due in
    select one.run_id, one.flow_slug, one.singleton_key from pgflowd.runs as one
     where one.due_at <= now() order by one.due_at
  loop
    exit when found_rows >= _due_runs.max_rows;
    continue when due.singleton_key is not null
      and (cardinality(busy) >= 200 or due.singleton_key = any (busy));
    perform from pgflow.flows as flow where flow.flow_slug = due.flow_slug for share skip locked;
    continue when not found;
    if due.singleton_key is not null and not pgflowd._lock_key(due.singleton_key, false) then
      busy := busy || due.singleton_key;
      continue;
    end if;
    perform from pgflow.runs as run where run.run_id = due.run_id for no key update skip locked;
    continue when not found and exists (select from pgflow.runs as run where run.run_id = due.run_id);
    perform from pgflowd.runs as ours where ours.run_id = due.run_id and ours.due_at <= now()
      for update skip locked;
    continue when not found;
    found_rows := found_rows + 1;
    return next due.run_id;
  end loop;
end $$;
