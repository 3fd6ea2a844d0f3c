"""A whole daemon that logs in with the rights of pgflow_worker and no more."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from psycopg.conninfo import make_conninfo
from support.covers import covers
from support.daemon import DaemonSetup

from pgflowd.db import schema
from pgflowd.testing.scratch import ScratchDatabase
from pgflowd.testing.until import until

ALL_WAYS = """
import os, time
from pgflowd import Flow, RetryAfter, Schedule
flow = Flow("ways", max_attempts=3, base_delay=0, timeout=3,
            schedules=[Schedule("@every 1s", {"items": []}, name="empty")])

@flow.step
def items(run, ctx):
    if ctx.attempt == 1: raise RetryAfter(0)
    return run["items"]

@flow.map(over="items", when_exhausted="skip")
def each(item, ctx):
    if item == "raises": raise ValueError("as it does")
    if item == "dies": os._exit(3)
    if item == "waits": time.sleep(60)
    return ctx.flow_input()["items"].index(item)

@flow.step
def total(each=None, *, ctx):
    return ctx.step_output("items")
"""


@pytest.fixture
def humble(database: ScratchDatabase) -> Iterator[str]:
    """The DSN of a role that is a pgflow_worker and nothing else."""
    conn, role = database.connect(), f"humble_daemon_{os.getpid()}"
    with database.connect(autocommit=False) as script:
        script.execute(schema.roles_sql().encode())
    conn.execute(f"create role {role} login".encode())
    conn.execute(f"grant pgflow_worker to {role}".encode())
    yield make_conninfo(database.dsn, user=role)
    sessions = "select pg_terminate_backend(pid) from pg_stat_activity where usename = %s"
    until(lambda: conn.execute(sessions, (role,)).rowcount == 0, 10)
    conn.execute(f"drop owned by {role}; drop role {role}".encode())


@covers("row 109")
def test_a_daemon_does_all_its_work_with_the_least_rights(
    setup: DaemonSetup, database: ScratchDatabase, humble: str
) -> None:
    setup.module("ways", ALL_WAYS)
    assert setup.start().command("flows", "deploy").returncode == 0
    setup.close()
    setup.dsn = humble
    daemon = setup.serve("humble", pgflowd={"definitions": "verify"})
    client = database.client

    good = client.start_flow("ways", {"items": ["a", "b"]})
    bad = [client.start_flow("ways", {"items": [item]}) for item in ("raises", "dies")]
    killed = client.start_flow("ways", {"items": ["waits"]})
    cancelled = client.start_flow("ways", {"items": ["waits", "a"]})
    assert client.wait(good.run_id, timeout=15).status == "completed"
    until(lambda: client.get_run_with_states(cancelled.run_id).steps["each"].status == "started", 9)
    client.cancel(cancelled.run_id, reason="enough")
    until(lambda: client.get_run_with_states(killed.run_id).steps["each"].status == "started", 9)
    daemon.kill("ways", signal.SIGKILL)  # and the sweeper gives back what it held
    daemon.until("sweeper.recovered")
    ticked = "select count(*) from pgflowd.runs where labels ->> 'schedule' = 'ways.empty'"
    until(lambda: database.connect().execute(ticked).fetchone()[0] > 1, 15)  # type: ignore[index]
    for run in bad:
        assert client.wait(run.run_id, timeout=15).status == "completed"
    daemon.send(signal.SIGHUP)
    daemon.until("supervisor.reloaded")
    daemon.send(signal.SIGTERM)

    assert daemon.ended() == 0
    assert "permission denied" not in daemon.log.read_text()
    assert daemon.events(code="E305") == []
