-- _labelled_runs(labels, most): returns the runs that have all these labels, or null if there are more
-- than so many: then it is cheaper to walk along the newest runs. Only a bitmap reads the index of
-- labels, and it is made whole: 200 pages for a million runs of one label. Of the runs it reads no more
-- than it counts.
-- Called by: _found_runs.   Locks: nothing.
create or replace function pgflowd._labelled_runs(labels jsonb, most int)
returns uuid[] language plpgsql stable set search_path = '', pg_temp
set enable_seqscan = off set enable_indexscan = off set enable_bitmapscan = on set jit = off
set max_parallel_workers_per_gather = 0 as $$
declare
  found constant uuid[] := array(select run.run_id from pgflowd.runs as run
                                  where run.labels @> _labelled_runs.labels limit most + 1);
begin
  return case when cardinality(found) <= most then found end;
end $$;
