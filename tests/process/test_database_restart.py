"""The database's server stops and comes back while the daemon works."""

from __future__ import annotations

import pytest
from support.covers import covers
from support.daemon import (
    DaemonSetup,
    attempts,
    is_completed,
    is_completed_soon,
    start_marked,
    start_run,
)
from support.invariants import broken
from support.own_server import OwnServer

from pgflowd import Client
from pgflowd.db.connection import connect
from pgflowd.testing.scratch import ScratchDatabase
from pgflowd.testing.until import until

CRASHES = 20


@pytest.fixture
def server():
    with OwnServer() as server:
        yield server


@pytest.fixture
def setup(tmp_path, server):
    setup = DaemonSetup(tmp_path, server.dsn)
    setup.flow("alpha", attempts=1)
    yield setup
    setup.close()
    with connect(server.dsn) as conn:
        assert broken(conn, setup.oracle) == []


@covers("P18", "row 66")
def test_a_restart_of_the_server_costs_no_restart_and_no_attempt(setup, server):
    daemon = setup.serve()
    before = daemon.pids()
    first = ScratchDatabase(server.dsn)
    run_id = start_marked(setup, first, s=1.5)
    first.close()

    server.stop()
    daemon.until("listener.lost")
    until(lambda: daemon.ask()["database"]["state"] == "down", 8)
    assert daemon.ask()["state"] == "degraded"
    server.start()
    assert server.dsn == setup.dsn

    again = ScratchDatabase(server.dsn)
    until(lambda: is_completed(again, run_id), 10)
    assert attempts(again, run_id) == [1]
    daemon.until("listener.regained")
    until(lambda: daemon.ask()["state"] == "healthy", 30)
    assert is_completed_soon(again, start_run(again, "alpha"))
    again.close()
    assert daemon.pids() == before
    assert daemon.ask()["supervisor"]["restarts"] == 0


@covers("row 67")
def test_after_a_crash_of_the_server_a_run_started_right_away_is_done(setup, server):
    daemon = setup.serve()
    before = daemon.pids()

    server.crash()
    server.start()
    assert server.dsn == setup.dsn
    again = ScratchDatabase(server.dsn)
    run_id = start_run(again, "alpha")  # its notification may come before the listener is back

    until(lambda: is_completed(again, run_id), 3 * 2)
    daemon.until("listener.regained")
    assert is_completed_soon(again, start_run(again, "alpha"))
    again.close()
    assert daemon.pids() == before
    assert daemon.events("child.restarted") == []


@covers("row 87")
def test_what_was_acknowledged_right_before_a_crash_is_still_there(server):
    acknowledged = set()
    with connect(server.dsn) as conn:
        conn.execute("select pgflow.create_flow('alpha'), pgflow.add_step('alpha', 'a')")

    for _ in range(CRASHES):
        client = Client(server.dsn)
        acknowledged |= {client.start_flow("alpha", {}).run_id for _ in range(3)}
        server.crash()
        client.close()
        server.start()

    with connect(server.dsn) as conn:
        query = """
            select run_id from pgflow.step_tasks
              join pgmq.q_alpha on msg_id = message_id where status = 'queued'
        """
        kept = {run_id for (run_id,) in conn.execute(query)}
    assert len(acknowledged) == 3 * CRASHES
    assert kept == acknowledged
