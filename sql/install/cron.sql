-- Where pg_cron is at hand, stalled tasks are given back without any daemon, as upstream does
-- it; a pg_cron before 1.5, which counts no seconds, does it each minute. A role that may not
-- schedule goes on without: the daemon's sweeper does the same.
do $$
begin
  if exists (select from pg_catalog.pg_extension where extname = 'pg_cron') then
    begin
      perform pgflow.setup_requeue_stalled_tasks_cron();
    exception when invalid_parameter_value then
      perform pgflow.setup_requeue_stalled_tasks_cron('* * * * *');
    end;
  end if;
exception when insufficient_privilege then
  raise warning 'pg_cron is here, but % may not schedule jobs; the daemon''s sweeper recovers '
                'stalled tasks instead', current_user;
end
$$;
