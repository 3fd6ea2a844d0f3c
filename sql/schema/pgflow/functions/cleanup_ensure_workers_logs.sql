-- cleanup_ensure_workers_logs(retention_hours): deletes cron's log of job runs that ended longer
-- ago.
-- Called by: setup_ensure_workers_cron; cron.   Locks: cron's rows.
create or replace function pgflow.cleanup_ensure_workers_logs(retention_hours int default 24)
returns table (cron_deleted bigint) language plpgsql security definer set search_path = '', pg_temp as $$
begin
  perform pgflow._require_trusted('cron');
  return query
    with deleted as (
      delete from cron.job_run_details as detail
       where detail.end_time < now() - make_interval(hours => retention_hours)
      returning 1
    )
    select count(*) from deleted;
end $$;
