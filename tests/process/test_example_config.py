"""
The example config runs the example flows: under load, with kills, and the status is true.
"""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from typing import Any

from support.daemon import Daemon

from pgflowd.host.process_tree import command_line
from pgflowd.resources import shipped
from pgflowd.testing.until import until

CONFIG = shipped("config") / "pgflowd.toml"
STATES = {"starting", "healthy", "degraded", "draining", "stopping", "failed"}
INPUTS: dict[str, dict[str, Any]] = {
    "analyze_website": {"url": "https://example.com"},
    "resize_images": {"count": 40},
    "flaky_payment": {"order": "A-17", "amount": 42},
    "undone_payment": {"order": "A-18", "amount": 12},
}
SERVED = sorted([*INPUTS, "undo_undone_payment"])
RUNS = 5  # of each flow
ENDED = {"completed": 4 * RUNS, "failed": RUNS}  # runs that undo a payment complete, too


class Watched:
    """The daemon of `pgflowd serve -c config/pgflowd.toml`, and its status at many moments."""

    def __init__(self, setup: Any) -> None:
        setup.environ |= {
            "PGFLOWD__DATABASE__URL": setup.dsn,
            "PGFLOWD__SUPERVISOR__CONTROL": str(setup.control("example")),
        }
        self.daemon = Daemon(setup, "example", CONFIG, ())
        setup.daemons.append(self.daemon)
        self.daemon.until("supervisor.ready")

    def status(self) -> dict[str, Any]:
        """Read the status by command; at any moment it must be complete and true."""
        done = self.daemon.command("status", "--json")
        assert done.returncode == 0, done.stderr
        status: dict[str, Any] = json.loads(done.stdout)
        assert (status["schema_version"], status["pid"]) == (1, self.daemon.pid)
        assert status["state"] in STATES
        assert sorted(flow["slug"] for flow in status["flows"]) == SERVED
        for kind, part in self.parts(status).items():
            if part["state"] == "up":
                self.check(kind, part)
        are_up = {part["state"] for part in self.parts(status).values()} == {"up"}
        assert are_up or status["state"] != "healthy"
        return status

    @staticmethod
    def parts(status: dict[str, Any]) -> dict[str, dict[str, Any]]:
        flows = {f"worker {flow['slug']}": flow for flow in status["flows"]}
        return {"listener": status["listener"], "sweeper": status["sweeper"], **flows}

    @staticmethod
    def check(kind: str, part: dict[str, Any]) -> None:
        """A child that is up is a process of that name, unless it has ended since."""
        title = command_line(part["pid"])
        assert title is None or not title or f"pgflowd: {kind}" in title
        assert 0 <= part.get("running", 0) <= part.get("max_concurrency", 0)

    def kill(self, kind: str) -> None:
        """Kill a child, and watch until another one has taken its place."""
        old = self.parts(self.status())[kind]["pid"]
        os.kill(old, signal.SIGKILL)
        until(lambda: self.is_replaced(kind, old), 20)

    def is_replaced(self, kind: str, old: int) -> bool:
        part = self.parts(self.status())[kind]
        return part["state"] == "up" and part["pid"] != old

    def kill_a_runner(self, task: str) -> None:
        """Kill a runner in its task; another one if the task had just ended."""
        for _ in range(5):
            os.kill(until(lambda: self.runners(task), 10)[0], signal.SIGKILL)
            with suppress(AssertionError):
                until(lambda: self.daemon.events("task.crashed"), 2)
                return

    def runners(self, task: str) -> list[int]:
        title = f"pgflowd: runner {task}"
        return [
            each.pid for each in self.daemon.family() if title in (command_line(each.pid) or "")
        ]


def statuses(database: Any) -> dict[str, int]:
    query = "select status, count(*) from pgflow.runs group by status"
    return dict(database.connect().execute(query).fetchall())


def sheets(database: Any) -> set[int]:
    query = "select output #>> '{contact_sheet,pixels}' from pgflow.runs where flow_slug = %s"
    return {int(row[0]) for row in database.connect().execute(query, ("resize_images",))}


def test_the_example_config_serves_through_kills_and_status_is_right(setup, database):
    watched = Watched(setup)
    for flow, given in INPUTS.items():
        database.client.start_flows(flow, [given] * RUNS)

    watched.kill_a_runner("resize_images/resize")
    watched.kill("worker analyze_website")
    watched.kill("listener")
    until(lambda: watched.status() and statuses(database) == ENDED, 40)

    assert sheets(database) == {40 * 400}
    assert [r["error"].partition(" (")[0] for r in watched.daemon.events("task.crashed")] == [
        "the runner crashed: killed by signal 9, SIGKILL"
    ]
    until(lambda: all(f["running"] == f["queued"] == 0 for f in watched.status()["flows"]), 8)
    status = watched.status()
    assert status["state"] == "healthy"
    texts = [each["text"] for each in status["problems"] if each["flow"]]
    assert texts == ["restarted once: killed by SIGKILL, perhaps out of memory"]
    assert {flow["slug"]: flow["restarts"] for flow in status["flows"]} == {
        "analyze_website": 1,
        "resize_images": 0,
        "flaky_payment": 0,
        "undone_payment": 0,
        "undo_undone_payment": 0,
    }
    assert sum(flow["completed_1m"] for flow in status["flows"]) > 0
    watched.daemon.send(signal.SIGTERM)
    assert watched.daemon.ended() == 0
