"""A server that has no connection left for the daemon while it runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from uuid import uuid4

import pytest
from psycopg.conninfo import make_conninfo
from support.covers import covers
from support.daemon import is_completed, start_run, terminate_all
from support.own_server import OwnServer

from pgflowd.db import schema
from pgflowd.testing.plugin import given_server
from pgflowd.testing.scratch import ScratchDatabase, ScratchServer
from pgflowd.testing.until import until


@pytest.fixture(scope="module")
def own_server() -> Iterator[ScratchServer]:
    """Nobody else is connected to it: what is told of it are those who have most connections."""
    with OwnServer() as server, given_server(server.dsn) as own:
        yield own


@pytest.fixture
def database(own_server: ScratchServer) -> Iterator[ScratchDatabase]:
    with own_server.database() as database:
        yield database


@pytest.fixture
def limited(setup, database):
    """A daemon as a role that a limit of connections binds, and the function that sets it."""
    conn, role = database.connect(), f"limited_{os.getpid()}_{uuid4().hex[:6]}"
    with database.connect(autocommit=False) as script:
        script.execute(schema.roles_sql().encode())
    conn.execute(f"create role {role} login".encode())
    conn.execute(f"grant pgflow_worker to {role}".encode())
    setup.flow("alpha", attempts=1)
    first = setup.serve()
    assert first.command("flows", "deploy").returncode == 0
    first.process.terminate()
    first.process.wait(20)
    setup.dsn = make_conninfo(database.dsn, user=role)

    def limit(most: int) -> None:
        conn.execute(f"alter role {role} connection limit {most}")

    daemon = setup.serve(pgflowd={"definitions": "verify"}, worker={"sleep_after": "500ms"})
    yield daemon, limit
    setup.close()
    sessions = "select pg_terminate_backend(pid) from pg_stat_activity where usename = %s"
    until(lambda: conn.execute(sessions, (role,)).rowcount == 0, 10)
    conn.execute(f"drop owned by {role}; drop role {role}".encode())


def problem(daemon, code):
    return next((each for each in daemon.ask()["problems"] if each["code"] == code), None)


@covers("row 78", "rule 56")
def test_a_full_server_costs_no_task_no_attempt_and_no_restart(setup, database, limited):
    daemon, limit = limited
    conn, gate = database.connect(), setup.directory / "gate"
    run_id = start_run(database, "alpha", gate=str(gate))
    running = "select count(*) from pgflow.step_tasks where status = 'started'"
    until(lambda: conn.execute(running).fetchone()[0], 10)

    limit(2)  # of listener and sweeper, which stand; no other is admitted
    terminate_all(database, "t: worker%")
    gate.touch()
    told = until(lambda: problem(daemon, "E310"), 10)

    assert "the server has no free connection: 2 are allowed; " in told["text"]
    assert "2 t (user limited_" in told["text"]
    limit(-1)
    until(lambda: is_completed(database, run_id), 15)
    attempts = "select attempts_count from pgflow.step_tasks"
    assert conn.execute(attempts).fetchall() == [(1,)]
    assert daemon.events("child.restarted") == []
    until(lambda: problem(daemon, "E310") is None, 10)


@covers("row 78", "rule 56")
def test_a_worker_that_finds_no_connection_at_its_start_waits_for_one(database, limited):
    daemon, limit = limited
    daemon.until("child.exited", child="worker alpha")

    limit(2)
    run_id = start_run(database, "alpha")
    daemon.until("child.waiting", child="worker alpha")
    until(lambda: problem(daemon, "E310"), 10)
    limit(-1)

    until(lambda: is_completed(database, run_id), 15)
    assert daemon.events("child.restarted") == []
