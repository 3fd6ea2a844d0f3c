-- cancellations(tokens): returns the cancelled runs among those that these attempts belong to, and
-- by whom and why they were cancelled.
-- Called by: workers.   Locks: nothing.
create or replace function pgflowd.cancellations(tokens bigint[])
returns table (run_id uuid, cancelled_by text, cancel_reason text)
language sql stable set search_path = '', pg_temp as $$
  select run.run_id, run.cancelled_by, run.cancel_reason
    from pgflowd.runs as run
   where run.cancelled_at is not null
     and run.run_id in (select attempt.run_id from pgflowd.attempts as attempt
                         where attempt.token = any(cancellations.tokens))
   order by run.cancelled_at, run.run_id;
$$;
