"""A database with flows in it, a worker that does what a test says, and terminals to look at it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from psycopg.types.json import Jsonb

from pgflowd import Flow
from pgflowd.testing.scratch import ScratchDatabase

MODULE = """
from pgflowd import Flow, job

flow = Flow("analyze_website", max_attempts=3, base_delay=5, timeout=60)

@flow.step
def website(run): ...

@flow.step(max_attempts=2)
def sentiment(website): ...

@flow.step(when_exhausted="skip")
def summary(website): ...

@flow.step
def save_to_db(sentiment, summary=None): ...

items = Flow("store_items")

@items.map
def store(item): ...

@job("send_email")
def send_email(run): ...
"""


@dataclass
class Shop:
    """The database of one test, and a worker of ours."""

    database: ScratchDatabase
    worker_id: UUID = field(default_factory=uuid4)

    def __post_init__(self) -> None:
        self.conn = self.database.connect()
        world: dict[str, Any] = {"__name__": "shop_flows"}
        exec(MODULE, world)
        self.flows = [world["flow"], world["items"], world["send_email"].flow]

    def deploy(self) -> None:
        for flow in self.flows:
            self.create(flow)

    def create(self, flow: Flow) -> None:
        shape = Jsonb(flow.shape())
        self.conn.execute("select pgflow._create_flow_from_shape(%s, %s)", (flow.slug, shape))

    def start(self, flow: str = "analyze_website", input: Any = None) -> UUID:
        query = "select run_id from pgflow.start_flow(%s, %s)"
        row = self.conn.execute(query, (flow, Jsonb({} if input is None else input))).fetchone()
        assert row is not None
        return UUID(str(row[0]))

    def claim(self, flow: str = "analyze_website") -> dict[str, tuple[Any, ...]]:
        """Take all tasks of a flow that can be taken; returns their keys by `step#index`."""
        self.conn.execute(
            "insert into pgflow.workers (worker_id, queue_name, function_name)"
            " values (%s, %s, 'test') on conflict do nothing",
            (self.worker_id, flow),
        )
        rows = self.conn.execute(
            "select run_id, step_slug, task_index, token from pgflowd.claim(%s, %s, 100, '30 s')",
            (flow, self.worker_id),
        ).fetchall()
        return {
            f"{step}#{index}": (run_id, step, index, token) for run_id, step, index, token in rows
        }

    def complete(self, key: tuple[Any, ...], output: Any) -> None:
        query = "select pgflowd.complete(%s, %s, %s, %s, %s)"
        self.conn.execute(query, (*key, Jsonb(output)))

    def fail(self, key: tuple[Any, ...], text: str, traceback: str | None = None) -> None:
        query = "select pgflowd.fail(%s, %s, %s, %s, %s, traceback => %s)"
        self.conn.execute(query, (*key, text, traceback))

    def run_through(self, output: Any = 1) -> UUID:
        """A run of analyze_website, completed."""
        run_id = self.start(input={"url": "x"})
        for _ in range(3):
            for key in self.claim().values():
                self.complete(key, output)
        return run_id

    def stall(self) -> None:
        """The leases of all claimed tasks lapsed an hour ago."""
        self.conn.execute(
            "update pgflowd.attempts set lease_until = now() - interval '1 h'"
            " where ended_at is null"
        )


def on_a_terminal(*args: str, columns: int, cwd: Path | None = None, **env: str) -> str:
    """Run a command on a terminal of so many columns, and return what it shows."""
    leader, follower = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "pgflowd.cli.main", *args],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        cwd=cwd,
        env={**os.environ, "COLUMNS": str(columns), "TERM": "xterm", **env},
    )
    os.close(follower)
    shown = b""
    while True:
        try:
            piece = os.read(leader, 4096)
        except OSError:
            break
        if not piece:
            break
        shown += piece
    child.wait(timeout=30)
    os.close(leader)
    return shown.decode().replace("\r\n", "\n")


Runs = Callable[..., Any]
