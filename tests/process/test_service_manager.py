"""
The service manager's view: ready, status, reload, stop, watchdog.

A socket of the test's own stands in for systemd and keeps what it receives.
"""

from __future__ import annotations

import signal
import socket
import threading
import time
from pathlib import Path

import pytest
from support.covers import covers
from support.daemon import is_completed_soon, start_marked, unreachable_url

from pgflowd.testing.until import until


class Manager:
    """The messages that the service manager has received from the daemon, with times."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "notify"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(self.path))
        self.received: list[str] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            self.received += self.socket.recv(65536).decode().splitlines()

    def receive(self) -> list[str]:
        return list(self.received)

    def count(self, line: str) -> int:
        return sum(each.startswith(line) for each in self.receive())


@pytest.fixture
def manager(setup):
    manager = Manager(setup.directory)
    setup.environ |= {"NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": "300000"}
    return manager


@covers("rule 7", "row 38")
def test_ready_is_announced_after_the_last_child_and_stopping_at_the_stop(setup, manager):
    setup.flow("alpha")
    daemon = setup.start()
    daemon.until("child.started", child="worker alpha")
    if not daemon.events("child.ready", child="sweeper"):
        assert "READY=1" not in manager.received
    daemon.until("supervisor.ready")
    until(lambda: manager.count("READY=1") == 1)
    assert manager.count("EXTEND_TIMEOUT_USEC=") >= 1
    assert "STATUS=healthy: 1 of 1 workers up" in manager.receive()

    daemon.send(signal.SIGTERM)

    assert daemon.ended() == 0
    assert manager.count("STOPPING=1") == 1


def test_a_reload_is_logged_from_its_beginning_to_its_end(setup, manager):
    setup.flow("alpha")
    daemon = setup.serve()

    daemon.send(signal.SIGHUP)

    daemon.until("supervisor.reloaded")
    until(lambda: manager.count("READY=1") == 2)
    received = manager.receive()
    assert received.index("RELOADING=1") < len(received) - 1 - received[::-1].index("READY=1")
    assert manager.count("MONOTONIC_USEC=") == 1


def test_while_it_waits_for_the_database_it_reports_it_and_extends_its_time(setup, manager):
    line, url = unreachable_url()
    setup.flow("alpha")
    setup.start(database={"url": url})

    until(lambda: "STATUS=starting: waiting for the database" in manager.receive(), 30)
    until(lambda: manager.count("EXTEND_TIMEOUT_USEC=") >= 2, 30)
    assert manager.count("READY=1") == 0
    line.close()


def test_a_long_drain_extends_its_time(setup, manager, database):
    setup.flow("alpha")
    daemon = setup.serve(supervisor={"drain_timeout": "1m"})
    start_marked(setup, database, s=7)
    manager.receive()
    before = manager.count("EXTEND_TIMEOUT_USEC=")

    daemon.send(signal.SIGTERM)

    until(lambda: manager.count("EXTEND_TIMEOUT_USEC=") >= before + 2, 8)
    daemon.send(signal.SIGTERM)
    assert daemon.ended() == 0


@covers("rule 48", "P25", "row 15", "row 38")
def test_the_watchdog_is_fed_by_the_loop_alone(setup, manager):
    setup.flow("alpha")
    daemon = setup.serve()
    before = manager.count("WATCHDOG=1")
    until(lambda: manager.count("WATCHDOG=1") >= before + 3, 2)

    daemon.send(signal.SIGSTOP)
    manager.receive()
    fed = manager.count("WATCHDOG=1")
    resumes = time.monotonic() + 1
    until(lambda: time.monotonic() > resumes)

    assert manager.count("WATCHDOG=1") == fed
    daemon.send(signal.SIGCONT)
    until(lambda: manager.count("WATCHDOG=1") > fed, 2)


@covers("row 15")
def test_workers_continue_while_the_supervisor_is_stopped(setup, manager, database):
    setup.flow("alpha")
    daemon = setup.serve()
    run_id = start_marked(setup, database, s=0.5)

    daemon.send(signal.SIGSTOP)

    assert is_completed_soon(database, run_id)
    daemon.send(signal.SIGCONT)


@covers("row 38")
def test_no_child_can_notify_the_service_manager(setup, manager, database):
    source = """
import os
from pgflowd import Flow
flow = Flow("looks")

@flow.step
def work(run):
    names = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "PGPASSWORD")
    return [name for name in names if name in os.environ]
"""
    setup.module("looks", source)
    setup.environ["PGPASSWORD"] = "canary"
    setup.serve()

    run = database.client.start_flow_sync("looks", {}, timeout=10)

    assert run.output == {"work": []}
