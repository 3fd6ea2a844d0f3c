"""A password that was changed, or a role that is gone, is waited for."""

from __future__ import annotations

import pytest
from support.covers import covers
from support.daemon import (
    DaemonSetup,
    is_completed,
    is_completed_soon,
    start_marked,
    start_run,
    terminate_all,
)
from support.invariants import broken
from support.own_server import OwnServer

from pgflowd.testing.scratch import ScratchDatabase
from pgflowd.testing.until import until


@pytest.fixture
def setup(tmp_path):
    """A setup whose database is named later."""
    setup = DaemonSetup(tmp_path, "")
    yield setup
    setup.close()


@covers("row 80")
def test_a_changed_password_and_a_role_that_is_gone_are_waited_for(setup, tmp_path):
    secret = tmp_path / "url"
    secret.touch(mode=0o600)
    with OwnServer() as server:
        database = ScratchDatabase(server.dsn)
        conn = database.connect()
        for who, password in (("humble", "first"), ("new", "third")):
            conn.execute(f"create role {who} superuser login password '{password}'")
        where = server.tcp_dsn.partition("@")[2]
        secret.write_text(f"postgresql://humble:first@{where}")
        setup.dsn = f"file:{secret}"
        setup.flow("alpha", attempts=1)
        daemon = setup.serve()
        before = daemon.pids()

        for change, answer, url in (
            ("password 'second'", "password authentication failed", f"humble:second@{where}"),
            ("rename to gone", "humble", f"new:third@{where}"),
        ):
            gate = tmp_path / answer
            run_id = start_marked(setup, database, gate=str(gate))
            conn.execute(f"alter role humble {change}")
            terminate_all(database)
            gate.touch()
            daemon.until("listener.lost", level="error")
            daemon.until("sweeper.lost", level="error")
            daemon.until("worker.error", level="error")
            until(lambda answer=answer: any(answer in text for text in problems(daemon)), 5)
            assert not is_completed(database, run_id)

            secret.write_text(f"postgresql://{url}")
            until(lambda run_id=run_id: is_completed(database, run_id), 5 * 2)
            until(lambda: daemon.ask()["database"]["state"] == "up", 10)

        assert is_completed_soon(database, start_run(database, "alpha"))
        assert daemon.pids() == before
        assert daemon.ask()["supervisor"]["restarts"] == 0
        assert broken(conn, setup.oracle) == []
        setup.close()
        database.close()


def problems(daemon):
    return [each["text"] for each in daemon.ask()["problems"]]
