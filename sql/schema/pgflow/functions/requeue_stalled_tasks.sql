-- requeue_stalled_tasks(): queues again the tasks that are started for 30 s longer than their
-- timeout. Returns how many. Security definer, so that a cron job of another role may call it.
-- Called by: setup_requeue_stalled_tasks_cron; cron, operators.   Locks: see _recover_stalled.
create or replace function pgflow.requeue_stalled_tasks()
returns int language plpgsql security definer set search_path = '', pg_temp as $$
begin
  return (select swept.requeued from pgflow._recover_stalled(interval '30 seconds') as swept);
end $$;
