-- _schedule(job_name, cron_interval, command): creates a cron job of this name, replacing an
-- older one. Raises where pg_cron is missing; a pg_cron before 1.5 runs each minute what should
-- run more often.
-- Called by: setup_ensure_workers_cron, setup_requeue_stalled_tasks_cron.   Locks: cron's rows.
create or replace function pgflow._schedule(job_name text, cron_interval text, command text)
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  if to_regclass('cron.job') is null then
    raise exception 'cron job % needs the extension pg_cron, and this database does not have it', job_name
      using errcode = 'undefined_object',
            hint = 'Create the extension, or run a pgflowd daemon, which does this without cron.';
  end if;
  perform pgflow._require_trusted('cron');
  if exists (select from cron.job as job where job.jobname = _schedule.job_name) then
    perform cron.unschedule(_schedule.job_name);
  end if;
  begin
    perform cron.schedule(_schedule.job_name, _schedule.cron_interval, _schedule.command);
  exception when invalid_parameter_value then
    if _schedule.cron_interval !~ '^ *[0-9]+ +seconds? *$' then
      raise;
    end if;
    raise notice 'pg_cron before 1.5 cannot schedule by seconds: job % runs each minute', job_name;
    perform cron.schedule(_schedule.job_name, '* * * * *', _schedule.command);
  end;
end $$;
