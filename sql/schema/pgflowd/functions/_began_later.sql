-- _began_later(ours): whether a run did not begin with its start, as it was planned for later, waited
-- for others or for its key. A row is made in the transaction of the start, after that has begun.
-- Called by: _trace_of, trace_id.   Locks: nothing.
create or replace function pgflowd._began_later(ours pgflowd.runs)
returns boolean language sql stable set search_path = '', pg_temp as $$
  select ours.undo_of is not null or coalesce((
    select run.started_at > ours.created_at from pgflow.runs as run where run.run_id = ours.run_id), true)
$$;
