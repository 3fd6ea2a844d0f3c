-- trace_id(run_id): returns the id of the trace of a run, as 32 digits: that of its caller if the run
-- began with its start, else the run's own id. Also of a run that was never traced.
-- Called by: `pgflowd runs show`, applications.   Locks: nothing.
create or replace function pgflowd.trace_id(run_id uuid)
returns text language sql stable set search_path = '', pg_temp as $$
  select coalesce(
    (select substr(ours.traceparent, 4, 32) from pgflowd.runs as ours
      where ours.run_id = trace_id.run_id and not pgflowd._began_later(ours)),
    replace(trace_id.run_id::text, '-', ''))
$$;
