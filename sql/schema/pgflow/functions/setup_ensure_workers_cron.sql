-- setup_ensure_workers_cron(cron_interval): schedules ensure_workers with cron, and an hourly
-- clean-up of cron's log of it.
-- Called by: operators.   Locks: cron's rows.
create or replace function pgflow.setup_ensure_workers_cron(cron_interval text default '1 second')
returns text language plpgsql security definer set search_path = '', pg_temp as $$
begin
  perform pgflow._schedule('pgflow_ensure_workers', cron_interval, 'select pgflow.ensure_workers()');
  perform pgflow._schedule('pgflow_cleanup_logs', '0 * * * *', 'select pgflow.cleanup_ensure_workers_logs()');
  return format('scheduled pgflow_ensure_workers (%s) and pgflow_cleanup_logs (hourly)', cron_interval);
end $$;
