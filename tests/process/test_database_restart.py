"""The database's server stops and comes back while the daemon works. P18, failures 66 and 67."""

from __future__ import annotations

import os
import signal

from daemon_house import House, is_gone
from test_stop_and_reload import start_marked
from test_supervisor import attempts, is_completed, is_completed_soon, start_run

from pgflowd.db import schema
from pgflowd.db.connection import connect
from pgflowd.host.postgres import EmbeddedPostgres
from pgflowd.host.proc import look
from pgflowd.testing.scratch import ScratchDatabase
from pgflowd.testing.until import until


def test_p18_a_restart_of_the_server_costs_no_restart_and_no_attempt(tmp_path):
    """Row 66."""
    directory = tmp_path / "server"
    server = EmbeddedPostgres(directory, keep=True)
    server.__enter__()
    with connect(server.dsn) as conn:
        schema.install(conn)
    house = House(tmp_path, server.dsn)
    try:
        house.flow("alpha", attempts=1)
        daemon = house.serve()
        before = daemon.pids()
        first = ScratchDatabase(server.dsn)
        run_id = start_marked(house, first, s=1.5)
        first.close()

        server.__exit__(None, None, None)
        daemon.until("listener.lost")
        until(lambda: daemon.ask()["database"]["state"] == "down", 8)
        server = EmbeddedPostgres(directory, keep=True)
        server.__enter__()
        assert server.dsn == house.dsn

        again = ScratchDatabase(server.dsn)
        until(lambda: is_completed(again, run_id), 10)
        assert attempts(again, run_id) == [1]
        daemon.until("listener.regained")
        assert is_completed_soon(again, start_run(again, "alpha"))
        again.close()
        assert daemon.pids() == before
        assert daemon.ask()["supervisor"]["restarts"] == 0
    finally:
        house.close()
        server.__exit__(None, None, None)


def test_row_67_after_a_crash_of_the_server_a_run_started_right_away_is_done(tmp_path):
    """Row 67."""
    directory = tmp_path / "server"
    server = EmbeddedPostgres(directory, keep=True)
    server.__enter__()
    with connect(server.dsn) as conn:
        schema.install(conn)
    house = House(tmp_path, server.dsn)
    try:
        house.flow("alpha", attempts=1)
        daemon = house.serve()
        before = daemon.pids()

        postmaster = look(server.pid)
        os.kill(server.pid, signal.SIGQUIT)  # an immediate stop: no shutdown checkpoint
        until(lambda: is_gone(postmaster), 10)
        server.__exit__(None, None, None)
        server = EmbeddedPostgres(directory, keep=True)
        server.__enter__()
        assert server.dsn == house.dsn
        again = ScratchDatabase(server.dsn)
        run_id = start_run(again, "alpha")  # its notification may find nobody who listens

        until(lambda: is_completed(again, run_id), 15)
        daemon.until("listener.regained")
        assert is_completed_soon(again, start_run(again, "alpha"))
        again.close()
        assert daemon.pids() == before
        assert daemon.events("child.restarted") == []
    finally:
        house.close()
        server.__exit__(None, None, None)
