-- _first_runs(run_ids, max_tasks): of these due runs the first ones that have no more tasks together than
-- this, as far as a sweep creates, ends or undoes them; the first one in any case.
-- Called by: _process_due_runs.   Locks: nothing.
create or replace function pgflowd._first_runs(run_ids uuid[], max_tasks bigint)
returns uuid[] language plpgsql stable set search_path = '', pg_temp as $$
declare
  total bigint := 0;
begin
  for nr in 1 .. coalesce(cardinality(_first_runs.run_ids), 0) loop
    total := total + pgflowd._due_tasks(_first_runs.run_ids[nr]);
    if nr > 1 and total > _first_runs.max_tasks then
      return _first_runs.run_ids[: nr - 1];
    end if;
  end loop;
  return _first_runs.run_ids;
end $$;
