-- Where pg_cron is installed, it recovers stalled tasks without any daemon, as upstream's install
-- does; a pg_cron before 1.5, which cannot schedule by seconds, does it each minute. A role that
-- may not schedule jobs gets a warning: the daemon's sweeper does the same.
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
  raise warning 'pg_cron is installed, but % may not schedule jobs (%); the daemon''s sweeper '
                'recovers stalled tasks instead', current_user, sqlerrm;
end
$$;
