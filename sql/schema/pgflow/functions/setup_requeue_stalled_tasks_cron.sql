-- setup_requeue_stalled_tasks_cron(cron_interval): schedules the recovery of stalled tasks with
-- cron, so that it happens while no daemon runs. Cron and a daemon may both do it.
-- Called by: db migrate, operators.   Locks: cron's rows.
create or replace function pgflow.setup_requeue_stalled_tasks_cron(cron_interval text default '15 seconds')
returns text language plpgsql security definer set search_path = '', pg_temp as $$
begin
  perform pgflow._schedule('pgflow_requeue_stalled_tasks', cron_interval, 'select pgflow.requeue_stalled_tasks()');
  return format('scheduled pgflow_requeue_stalled_tasks (%s)', cron_interval);
end $$;
