-- due_late(): returns for how many seconds the first wait or run has been due that was not processed; 0
-- if none is.
-- Called by: the sweeper.   Locks: nothing.
create or replace function pgflowd.due_late()
returns float8 language sql stable set search_path = '', pg_temp as $$
  select greatest(0, extract(epoch from now() - least(
           (select min(wait.due_at) from pgflowd.waits as wait where wait.due_at is not null),
           (select min(run.due_at) from pgflowd.runs as run where run.due_at is not null))))::float8;
$$;
