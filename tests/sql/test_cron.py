"""Jobs of pg_cron, where it is."""

import pytest


def jobs(suite):
    return {
        row["jobname"]: (row["schedule"], row["command"].rstrip(";").lower())
        for row in suite.rows("select * from cron.job")
    }


def test_recovery_is_scheduled_every_15_seconds(suite):
    suite.value("select pgflow.setup_requeue_stalled_tasks_cron()")

    (job,) = jobs(suite).items()
    assert job[0] == "pgflow_requeue_stalled_tasks"
    assert job[1][0] == "15 seconds"
    assert "pgflow.requeue_stalled_tasks()" in job[1][1]


def test_recovery_is_rescheduled(suite):
    suite.value("select pgflow.setup_requeue_stalled_tasks_cron('15 seconds')")

    text = suite.value(
        "select pgflow.setup_requeue_stalled_tasks_cron(cron_interval => '1 minute')"
    )

    assert isinstance(text, str)
    assert jobs(suite)["pgflow_requeue_stalled_tasks"][0] == "1 minute"
    assert len(jobs(suite)) == 1


def test_the_scheduled_command_runs(suite):
    suite.value("select pgflow.setup_requeue_stalled_tasks_cron()")
    suite.value("select pgflow.setup_ensure_workers_cron()")

    for command in suite.column("select command from cron.job"):
        suite.do(command)


def test_workers_are_ensured_every_second_and_logs_cleaned_each_hour(suite):
    text = suite.value("select pgflow.setup_ensure_workers_cron()")

    assert "pgflow_ensure_workers" in text
    assert jobs(suite) == {
        "pgflow_ensure_workers": ("1 second", "select pgflow.ensure_workers()"),
        "pgflow_cleanup_logs": ("0 * * * *", "select pgflow.cleanup_ensure_workers_logs()"),
    }


def test_older_jobs_are_replaced(suite):
    suite.value("select pgflow.setup_ensure_workers_cron('10 seconds')")
    before = set(suite.column("select jobid from cron.job"))

    suite.value("select pgflow.setup_ensure_workers_cron(cron_interval => '2 seconds')")

    assert jobs(suite)["pgflow_ensure_workers"][0] == "2 seconds"
    assert len(jobs(suite)) == 2 and before


def test_a_pg_cron_that_counts_no_seconds_runs_each_minute(suite):
    suite.do(
        """create or replace function cron.schedule(job_name text, schedule text, command text)
           returns bigint language plpgsql as $$
           begin
             if schedule !~ '^([^ ]+ ){4}[^ ]+$' then
               raise invalid_parameter_value using message = 'invalid schedule: ' || schedule;
             end if;
             insert into cron.job (jobname, schedule, command)
             values (job_name, schedule.schedule, schedule.command);
             return 1;
           end $$"""
    )

    suite.value("select pgflow.setup_requeue_stalled_tasks_cron()")
    suite.value("select pgflow.setup_ensure_workers_cron()")

    assert {name: job[0] for name, job in jobs(suite).items()} == {
        "pgflow_requeue_stalled_tasks": "* * * * *",
        "pgflow_ensure_workers": "* * * * *",
        "pgflow_cleanup_logs": "0 * * * *",
    }
    assert "invalid schedule: often" in str(
        suite.error("select pgflow.setup_ensure_workers_cron('often')")
    )


def test_logs_older_than_a_day_are_deleted(suite):
    for hours in (1, 23, 25, 100):
        suite.do(
            "insert into cron.job_run_details (end_time)"
            " values (now() - make_interval(hours => %s))",
            hours,
        )
    suite.do("insert into cron.job_run_details (end_time) values (null)")

    assert suite.rows("select * from pgflow.cleanup_ensure_workers_logs()") == [{"cron_deleted": 2}]
    assert suite.value("select count(*) from cron.job_run_details") == 3
    assert suite.value("select cron_deleted from pgflow.cleanup_ensure_workers_logs(0)") == 2


@pytest.mark.parametrize(
    "call",
    [
        "pgflow.setup_requeue_stalled_tasks_cron()",
        "pgflow.setup_ensure_workers_cron()",
        "pgflow.cleanup_ensure_workers_logs()",
    ],
)
def test_without_cron_the_error_names_what_is_missing(plain, call):
    error = plain.error(f"select {call}")

    assert "cron" in str(error)


def test_without_net_and_vault_the_error_names_what_is_missing(plain):
    plain.do("select pgflow.track_worker_function('one')")

    assert "vault" in str(plain.error("select pgflow.ensure_workers()"))
    plain.do(
        "select set_config('app.settings.jwt_secret',"
        " 'super-secret-jwt-token-with-at-least-32-characters-long', true)"
    )
    assert "net" in str(plain.error("select pgflow.ensure_workers()"))
