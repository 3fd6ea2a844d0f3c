"""
Daemons on two machines, PostgreSQL on a third: one of them vanishes, or is cut off for a while.

Collected for root only (see conftest): machines are network namespaces.
"""

from __future__ import annotations

import json
import subprocess
import time

import pytest
from support.covers import covers
from support.daemon import PGFLOWD, marks, passed
from support.invariants import broken
from support.servers import (
    Starter,
    completed_runs,
    near_url_of,
    open_runs,
    recorded,
    reported,
    url_of,
)

from pgflowd.db import schema
from pgflowd.testing.scratch import ScratchDatabase
from pgflowd.testing.until import until

RECOVERED_S = 3.5  # lease, recovery_interval and a second more, in profile T
TCP_USER_TIMEOUT_S = 5


@pytest.fixture
def shop(setup, network, servers):
    """Two machines for daemons, and a server on the third."""
    setup.flow("flow", attempts=1)
    setup.one, setup.two, three = (network.machine() for _ in range(3))
    server = servers.start(three)
    with server.connect() as conn:
        schema.migrate(conn)
    setup.dsn = server.url()
    setup.database_machine = three
    setup.database = ScratchDatabase(server.dsn)  # on the socket, which no cable cuts
    setup.conn = setup.database.connect()
    yield setup
    setup.database.close()


def serve(shop, name, machine):
    shop.inside = machine.inside
    return shop.serve(name)


def start(shop, path, **more):
    return shop.database.client.start_flow("flow", {"marks": str(path), **more}).run_id


def begun(path):
    return [pid for what, pid, _ in marks(path) if what == "start"]


@covers("row 1", "row 2", "row 3", "G7")
def test_a_machine_vanishes_and_its_tasks_continue_elsewhere(shop):
    """For a whole machine."""
    path, gate = shop.directory / "marks", shop.directory / "gate"
    first = serve(shop, "one", shop.one)
    runs = {start(shop, path, gate=str(gate)) for _ in range(4)}
    until(lambda: len(begun(path)) == 4)
    second = serve(shop, "two", shop.two)

    shop.one.unplug()
    gone = time.monotonic()
    first.close()

    until(lambda: len(begun(path)) == 8, RECOVERED_S * 2)
    assert passed(gone) > 1  # the lease lapsed; no broken connection was noticed
    gate.touch()
    until(lambda: open_runs(shop.conn) == 0)
    assert completed_runs(shop.conn) == runs
    assert second.events("child.restarted") == []
    assert broken(shop.conn, shop.oracle) == []


@covers("row 13", "row 14")
def test_a_machine_that_was_cut_off_comes_back_and_its_old_reports_are_refused(shop):
    """By the network."""
    path, gate = shop.directory / "marks", shop.directory / "gate"
    first = serve(shop, "one", shop.one)
    run = start(shop, path, gate=str(gate))
    until(lambda: begun(path))
    second = serve(shop, "two", shop.two)

    shop.one.unplug()
    until(lambda: len(begun(path)) == 2, RECOVERED_S * 2)
    gate.touch()
    until(lambda: [what for what, _, _ in marks(path)].count("end") == 2)
    shop.one.plug_in()

    first.until("worker.error", code="E407", within_s=20)
    until(lambda: open_runs(shop.conn) == 0)
    assert completed_runs(shop.conn) == {run}
    assert len(recorded(shop.conn)) == 1
    assert broken(shop.conn, shop.oracle, was_frozen=True) == []
    assert first.events("child.restarted") == second.events("child.restarted") == []


@covers("row 71")
def test_packets_dropped_are_noticed_by_the_tcp_user_timeout(shop):
    path, gate = shop.directory / "marks", shop.directory / "gate"
    daemon = serve(shop, "one", shop.one)
    run = start(shop, path, gate=str(gate))
    until(lambda: begun(path))

    shop.database_machine.unplug()
    gate.touch()
    [lost, *_] = daemon.until("worker.error", within_s=(TCP_USER_TIMEOUT_S + 2) * 2)
    assert "timed out" in lost["error"] or "No route" in lost["error"]  # the kernel's own words
    shop.database_machine.plug_in()

    until(lambda: completed_runs(shop.conn) == {run}, 10)
    assert recorded(shop.conn) == {run}
    assert daemon.events("child.restarted") == []
    assert broken(shop.conn, shop.oracle) == []


@covers("row 69", "row 71")
def test_the_primarys_machine_vanishes_and_daemons_find_the_standby(setup, network, servers):
    one, two, three, four = (network.machine() for _ in range(4))
    primary, standby = servers.pair(three, four)
    with primary.connect() as conn:
        schema.migrate(conn)
    setup.dsn = url_of(primary, standby)
    setup.flow("flow")
    daemons = []
    for name, machine in (("one", one), ("two", two)):
        setup.inside = machine.inside
        daemons.append(setup.serve(name))
    starter = Starter(near_url_of(primary, standby))
    starter.has_more_than(40)

    three.unplug()
    primary.kill()
    conn = standby.connect()
    assert conn.execute("select pg_promote()").fetchone() == (True,)

    starter.has_more_than(len(starter.acknowledged) + 20)
    acknowledged = starter.ended()
    until(lambda: open_runs(conn) == 0, 15)
    assert acknowledged <= completed_runs(conn)
    assert set() < reported(daemons[0]) | reported(daemons[1]) <= recorded(conn)
    assert broken(conn, setup.oracle) == []
    assert [daemon.events("child.restarted") for daemon in daemons] == [[], []]
    conn.close()


@covers("W316")
def test_a_line_to_another_machine_that_is_not_encrypted_is_warned_about(shop):
    daemon = serve(shop, "one", shop.one)

    [told] = daemon.until("sweeper.problem", code="W316")
    doctor = subprocess.run(
        [*shop.one.inside, *PGFLOWD, "doctor", "--json", "--database-url", shop.dsn],
        capture_output=True,
        text=True,
    )

    assert "sslmode=verify-full" in told["next"]
    assert "W316" in [finding["code"] for finding in json.loads(doctor.stdout)["findings"]]
