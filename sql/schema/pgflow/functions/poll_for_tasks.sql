-- poll_for_tasks(queue_name, vt, qty, …): the claim of old releases. It raises a notice and
-- returns nothing.
-- Called by: no current release.   Locks: nothing.
create or replace function pgflow.poll_for_tasks(
  queue_name text, vt int, qty int, max_poll_seconds int default 5,
  poll_interval_ms int default 100)
returns setof pgflow.step_task_record language plpgsql set search_path = '', pg_temp as $$
begin
  raise notice 'poll_for_tasks is deprecated; use pgmq.read_with_poll and pgflow.start_tasks';
end $$;
