-- _process_due_runs(max_rows): starts and ends runs that are due; returns how many it has dealt with. They
-- have at most a hundred times as many tasks together, or it is one run.
-- Where one raises, it is tried again in a minute, and the others are dealt with; a notice, PF013,
-- says which: its detail is an object with run and error.
-- Security definer, since a worker's role may not start runs.
-- Called by: process_due.   Locks: see _due_runs and _process_runs.
create or replace function pgflowd._process_due_runs(max_rows int)
returns int language plpgsql security definer set search_path = '', pg_temp as $$
declare
  due constant uuid[] := pgflowd._first_runs(
    array(select pgflowd._due_runs(_process_due_runs.max_rows)), 100 * _process_due_runs.max_rows);
  one uuid;
begin
  if due = '{}' then
    return 0;
  end if;
  begin
    perform pgflowd._process_runs(due);
  exception when others then
    foreach one in array due loop
      begin
        perform pgflowd._process_runs(array[one]);
      exception when others then
        update pgflowd.runs as run set due_at = now() + interval '1 minute' where run.run_id = one;
        raise notice 'run % cannot be started or ended: %', one, sqlerrm
          using errcode = 'PF013', detail = jsonb_build_object('run', one, 'error', sqlerrm);
      end;
    end loop;
  end;
  return cardinality(due);
end $$;
