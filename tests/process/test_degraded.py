"""A daemon whose server is hindered by somebody else: `status` says so, and heals by itself."""

from __future__ import annotations

import json

import psycopg
import pytest
from support.covers import covers
from support.daemon import DaemonSetup
from support.own_server import OwnServer

from pgflowd.testing.until import until

PAGE = "select pg_notify('somewhere', %s || repeat('x', 7000))"  # fills one page of the queue


@pytest.fixture
def small_queue(tmp_path):
    """A server with the smallest queue of notifications, 64 pages, and a daemon's setup there."""
    with OwnServer({"max_notify_queue_pages": "64"}) as server:
        setup = DaemonSetup(tmp_path, server.dsn)
        yield server, setup
        setup.close()


def fill(conn: psycopg.Connection, most: int = 100) -> None:
    for number in range(most):
        conn.execute(PAGE, (f"{number} ",))


@covers("database 5", "G9")
def test_a_full_notification_queue_is_told_and_heals_when_the_guilty_session_is_gone(small_queue):
    server, setup = small_queue
    setup.flow("alpha")
    daemon = setup.serve()
    deaf = psycopg.connect(server.dsn, dbname="template1", application_name="report builder")
    deaf.execute("listen somewhere")
    deaf.commit()
    deaf.execute("select 1")  # and stays in this transaction

    with psycopg.connect(server.dsn, autocommit=True) as conn:
        with pytest.raises(psycopg.errors.ProgramLimitExceeded):
            fill(conn)
        status = until(lambda: with_problem(daemon, "E319"), 10)
        assert status["state"] == "degraded"
        assert daemon.command("status", "--check").returncode == 1
        [problem] = [each for each in status["problems"] if each["code"] == "E319"]
        pid = deaf.info.backend_pid
        assert f"pid {pid} (report builder, user postgres, database template1)" in problem["text"]
        assert f"pg_terminate_backend({pid})" in problem["next"]

        conn.execute("select pg_terminate_backend(%s)", (pid,))

        until(lambda: daemon.ask()["state"] == "healthy", 10)
        run_id = conn.execute("select run_id from pgflow.start_flow('alpha', '{}')").fetchone()[0]
        done = "select status = 'completed' from pgflow.runs where run_id = %s"
        until(lambda: conn.execute(done, (run_id,)).fetchone()[0], 10)
    assert daemon.events("child.restarted") == []
    assert len(daemon.events("sweeper.problem", code="E319")) == 1


@covers("database 5")
def test_doctor_names_who_holds_a_full_queue_in_another_database(small_queue):
    server, setup = small_queue
    setup.flow("alpha")
    daemon = setup.serve()
    deaf = psycopg.connect(server.dsn, dbname="template1", application_name="report builder")
    deaf.execute("listen somewhere")
    deaf.commit()
    deaf.execute("select 1")
    with psycopg.connect(server.dsn, autocommit=True) as conn:
        fill(conn, 20)

    ended = daemon.command("doctor", "--json")

    found = {each["check"]: each for each in json.loads(ended.stdout)["findings"]}
    assert (ended.returncode, found["listeners"]["code"]) == (1, "E319")
    assert "(report builder, user postgres, database template1)" in found["listeners"]["text"]
    deaf.close()


def with_problem(daemon, code):
    status = daemon.ask()
    return status if code in {each["code"] for each in status["problems"]} else None
