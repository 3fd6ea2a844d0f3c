-- A stand-in for the extension pg_cron: it keeps jobs and runs none.
create schema cron;
create table cron.job (
  jobid bigint generated always as identity primary key,
  jobname text unique,
  schedule text not null,
  command text not null
);
create function cron.schedule(job_name text, schedule text, command text)
returns bigint language sql as $$
  insert into cron.job (jobname, schedule, command)
  values (schedule.job_name, schedule.schedule, schedule.command)
  on conflict (jobname) do update set schedule = excluded.schedule, command = excluded.command
  returning jobid;
$$;
create function cron.unschedule(job_name text)
returns boolean language plpgsql as $$
begin
  delete from cron.job where jobname = unschedule.job_name;
  if not found then
    raise exception 'could not find valid entry for job ''%''', unschedule.job_name;
  end if;
  return true;
end $$;
create function cron.unschedule(job_id bigint)
returns boolean language sql as $$
  delete from cron.job where jobid = unschedule.job_id returning true;
$$;
