"""A database with flows in it, the verbs of a worker, and terminals."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from psycopg.types.json import Jsonb

from pgflowd import Flow
from pgflowd.testing.scratch import ScratchDatabase
from support.database import NO_INPUT, Database, TaskKey, key

STATUS = Path(__file__).parents[1] / "unit" / "status_document.json"
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


class Shop(Database):
    """The database of one test, and a worker of the test."""

    def __init__(self, database: ScratchDatabase) -> None:
        super().__init__(database.connect())
        self.database = database
        self.worker_id = uuid4()
        module: dict[str, Any] = {"__name__": "shop_flows"}
        exec(MODULE, module)
        self.flows = [module["flow"], module["items"], module["send_email"].flow]

    def deploy(self) -> None:
        for flow in self.flows:
            self.create(flow)

    def create(self, flow: Flow) -> None:
        shape = Jsonb(flow.shape())
        self.do("select pgflow._create_flow_from_shape(%s, %s)", flow.slug, shape)

    def start(
        self, flow: str = "analyze_website", input: Any = NO_INPUT, run_id: Any = None
    ) -> UUID:
        return super().start(flow, input, run_id)

    def claim_all(self, flow: str = "analyze_website") -> dict[str, TaskKey]:
        """Claim all tasks of a flow; return their keys by `step#index`."""
        tasks = self.claim(flow, self.worker(flow, self.worker_id), 100)
        return {f"{task.step_slug}#{task.task_index}": key(task) for task in tasks}

    def run_through(self, output: Any = 1) -> UUID:
        """A run of analyze_website, completed."""
        run_id = self.start(input={"url": "x"})
        for _ in range(3):
            for task in self.claim_all().values():
                self.complete(task, output)
        return run_id

    def suspend(self, task: Any, **wait: Any) -> None:
        """Report that a task waits."""
        names = ("run_id", "step_slug", "task_index", "token")
        element = {**dict(zip(names, task, strict=True)), "outcome": "suspended"}
        checkpoint = "sleep 1" if wait["kind"] == "sleep" else f"signal {wait['name']} 1"
        element["wait"] = {"checkpoint": checkpoint, **wait}
        answer = self.row(
            "select * from pgflowd.report(%s::jsonb, array[null])",
            json.dumps([element], default=str),
        )
        assert answer.verdict == "queued", answer

    def tell_daemon(self, host: str, worker_id: UUID | None = None, **more: Any) -> dict[str, Any]:
        """A daemon of a host tells its status; its first worker has this id."""
        told = json.loads(STATUS.read_text())
        told |= {"id": str(uuid4()), "host": host, "problems": [], **more}
        for flow in told["flows"]:
            flow["worker_id"] = None
        told["flows"][0]["worker_id"] = worker_id and str(worker_id)
        self.do("select pgflowd.tell_daemon(%s)", Jsonb(told))
        return told

    def stall(self) -> None:
        """Let the leases of all claimed tasks have lapsed an hour ago."""
        query = "update pgflowd.attempts set lease_until = now() - interval '1 h'"
        self.do(f"{query} where ended_at is null")


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
