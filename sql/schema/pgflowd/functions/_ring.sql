-- _ring(queue_name): notifies the listeners of this queue if somebody sleeps on it.
-- For functions that make messages visible without an insert, which no trigger sees.
-- Called by: claim, _hide, _pass_gates, _requeue_stalled, _sweep_unleased_task.   Locks: nothing.
create or replace function pgflowd._ring(queue_name text)
returns void language sql volatile set search_path = '', pg_temp as $$
  select pgflowd._wake(_ring.queue_name)
   where pgflowd._is_awaited(lower(_ring.queue_name collate "C"));
$$;
