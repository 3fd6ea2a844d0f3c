"""With pg_cron, a job requeues stalled tasks, where the role may schedule one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.schema import Connection

from pgflowd.db import schema
from pgflowd.testing.scratch import ScratchServer


@pytest.fixture
def beside_cron(offering: ScratchServer) -> Iterator[Connection]:
    """A database with pg_cron and nothing else."""
    with offering.database(schema=False) as fresh:
        conn = fresh.connect()
        conn.execute("create extension pg_cron")
        yield conn


def test_a_fresh_install_schedules_the_recovery_and_later_ones_leave_it(
    beside_cron: Connection,
) -> None:
    schema.migrate(beside_cron)

    assert _jobs(beside_cron) == [("pgflow_requeue_stalled_tasks",)]

    beside_cron.execute("select cron.unschedule('pgflow_requeue_stalled_tasks')")
    schema.migrate(beside_cron)
    assert _jobs(beside_cron) == []


def test_an_old_pg_cron_that_counts_no_seconds_does_it_each_minute(
    beside_cron: Connection,
) -> None:
    beside_cron.execute(
        "create or replace function cron.schedule(job_name text, schedule text, command text)"
        " returns bigint language plpgsql as $$ begin"
        " if schedule ~ 'seconds' then raise exception 'invalid schedule: %', schedule"
        " using errcode = 'invalid_parameter_value'; end if;"
        " insert into cron.job (jobname, schedule, command)"
        " values ($1, $2, $3); return 1; end $$"
    )

    schema.migrate(beside_cron)

    assert beside_cron.execute("select schedule from cron.job").fetchall() == [("* * * * *",)]


def test_without_the_right_to_schedule_all_else_is_done_and_it_is_reported(
    beside_cron: Connection,
) -> None:
    said: list[str | None] = []
    beside_cron.add_notice_handler(lambda notice: said.append(notice.message_primary))
    database = beside_cron.info.dbname
    beside_cron.execute(f'grant create on database "{database}" to pg_monitor'.encode())
    beside_cron.execute("set role pg_monitor")

    schema.migrate(beside_cron)

    assert schema.status(beside_cron).problem is None
    assert any("pg_monitor may not schedule jobs" in (text or "") for text in said)


def _jobs(conn: Connection) -> list[tuple[str]]:
    return conn.execute("select jobname from cron.job").fetchall()
