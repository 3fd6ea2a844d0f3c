-- _due_runs(max_rows): the runs that have been due for longest, and are free: nobody deletes their flow just
-- now, nor has their lock, nor that of their singleton key, which is not asked for where the flow is locked.
-- They are taken in their order whatever the statistics say, hence no sort and no bitmap.
-- Called by: postpone_due, _process_due_runs.
-- Locks: the flows, the keys, the runs, their rows in pgflowd.runs, in this order, skipping locked ones.
create or replace function pgflowd._due_runs(max_rows int)
returns setof uuid language plpgsql set search_path = '', pg_temp set jit = off
  set enable_sort = off set enable_bitmapscan = off as $$
begin
  return query
    select due.run_id
      from (select one.run_id, one.flow_slug, one.singleton_key from pgflowd.runs as one
             where one.due_at <= now() order by one.due_at) as due
     cross join lateral (
       select true as is_free
         from (select from pgflow.flows as one
                where one.flow_slug = due.flow_slug offset 0 for share skip locked) as flow
        where due.singleton_key is null or pgflowd._lock_key(due.singleton_key, false) offset 0) as flow
      left join lateral (
       select true as is_held from pgflow.runs as one
        where one.run_id = due.run_id and flow.is_free offset 0 for no key update skip locked) as run on true
     cross join lateral (
       select from pgflowd.runs as one
        where one.run_id = due.run_id and flow.is_free offset 0 for update skip locked) as ours
     where run.is_held
        or not exists (select from pgflow.runs as one where one.run_id = due.run_id offset 0)
     limit max_rows;
end $$;
