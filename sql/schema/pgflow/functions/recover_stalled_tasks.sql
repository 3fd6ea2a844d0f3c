-- recover_stalled_tasks(p_stale_threshold): as requeue_stalled_tasks, with the caller's number of
-- seconds. vt_batches counts the queues that had something to recover.
-- Called by: workers of other runtimes.   Locks: see _recover_stalled.
create or replace function pgflow.recover_stalled_tasks(p_stale_threshold double precision)
returns table (recovered_count bigint, vt_batches bigint)
language plpgsql security definer set search_path = '', pg_temp as $$
begin
  return query
    select swept.requeued::bigint, swept.queues::bigint
      from pgflow._recover_stalled(make_interval(secs => p_stale_threshold)) as swept;
end $$;
