"""
A real worker for a test: forked as the supervisor forks it, ordered through its channel.

    worker = start_worker('''...a module with flows...''', max_concurrency=4)
    worker.start_run("flow", {"x": 1})

Times are those of profile T (docs/background/failures.md, section 2). At the end nothing of it may
be left.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pgflowd.core.messages import (
    ConnectionGranted,
    ConnectionWanted,
    Drain,
    Message,
    QuickStop,
    Ready,
    Wake,
)
from pgflowd.core.settings.sections import (
    DatabaseSettings,
    RecoverySettings,
    Settings,
    SupervisorSettings,
    WorkerSettings,
)
from pgflowd.core.supervision.tree import ServedFlow
from pgflowd.host.fork import ForkedChild, fork
from pgflowd.host.logs import open_log
from pgflowd.host.process_tree import command_line, in_session, kill_session, read_stat
from pgflowd.processes.worker import main as worker
from pgflowd.testing.scratch import ScratchDatabase
from pgflowd.testing.until import until
from support.daemon import whole_lines
from support.database import NO_INPUT, Database

PROFILE_T = Settings(
    database=DatabaseSettings(
        reconnect_min_s=0.1,
        reconnect_max_s=1.0,
        connect_timeout_s=1.0,
        statement_timeout_s=6.0,
        tcp_user_timeout_s=5.0,
    ),
    worker=WorkerSettings(heartbeat_interval_s=0.5, kill_grace_s=0.5, runner_idle_s=2.0),
    supervisor=SupervisorSettings(drain_timeout_s=3.0),
    recovery=RecoverySettings(lease_s=2.0, recovery_interval_s=0.5, stale_threshold_s=2.0),
)


class RunningWorker(Database):
    """A worker process, and the verbs of its database. It gets a second connection when it asks."""

    def __init__(self, child: ForkedChild, database: ScratchDatabase, log: Path, flow: str) -> None:
        self.child, self.flow = child, flow
        super().__init__(database.connect())
        self._log = log
        self.all_received: list[Any] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._answer, daemon=True).start()
        self.was_frozen = False  # beyond its lease: then its executions may overlap with others

    @property
    def pid(self) -> int:
        return self.child.pid

    def receive(self) -> list[Any]:
        with self._lock:
            received = self.child.channel.receive() if self.child.channel.fileno() >= 0 else []
            self.all_received += received
            if any(isinstance(each, ConnectionWanted) for each in received):
                self.child.channel.send(ConnectionGranted())
        return self.all_received

    def _answer(self) -> None:
        """Play the supervisor, until the worker has ended."""
        while self.child.channel.fileno() >= 0 and not self.child.channel.at_end:
            with contextlib.suppress(OSError, ValueError):  # it is being closed
                select.select([self.child.channel], [], [], 0.2)
                self.receive()

    def received(self, kind: type[Message]) -> Any:
        return next((each for each in self.receive() if isinstance(each, kind)), None)

    def send(self, message: Message) -> None:
        self.child.channel.send(message)

    @property
    def worker_id(self) -> str:
        return str(self.received(Ready).worker_id)

    def ended(self, within_s: float = 10.0) -> int:
        """Wait for its end; return the exit code, or minus the signal."""
        until(self.child.has_ended, within_s)
        self.receive()
        return self.child.collect()

    def drain(self, within_s: float | None = 10.0) -> int:
        self.send(Drain(within_s))
        return self.ended((within_s or 10.0) + 5)

    def quick_stop(self) -> int:
        self.send(QuickStop())
        return self.ended()

    # the process table

    def processes(self, kind: str = "") -> list[int]:
        """The pids of the worker's session whose title has this word."""
        found = []
        for seen in in_session(self.pid):
            title = command_line(seen.pid)
            if kind in title and seen.pid != self.pid:
                found.append(seen.pid)
        return found

    def title(self) -> str:
        return command_line(self.pid)

    @property
    def zygote(self) -> int:
        return int(next(iter(self.processes("pgflowd: zygote"))))

    @property
    def runners(self) -> list[int]:
        return self.processes("pgflowd: runner")

    # the database

    def start_run(self, given: Any = NO_INPUT, flow: str | None = None) -> str:
        """Start a run, and wake the worker as the listener would."""
        run = str(self.start(flow or self.flow, given))
        self.send(Wake())
        return run

    def waits_for_a_lock(self) -> bool:
        """Whether a session waits for a table's lock that a test holds."""
        query = """
            select exists (select from pg_locks where not granted and database =
              (select oid from pg_database where datname = current_database()))
        """
        return bool(self.value(query))

    # the log

    def records(self, event: str = "") -> list[dict[str, Any]]:
        found = [json.loads(line) for line in whole_lines(self._log) if line.startswith("{")]
        return [record for record in found if record["event"].startswith(event)]


def is_gone(pid: int) -> bool:
    seen = read_stat(pid)
    return seen is None or seen.is_zombie


def fork_worker(
    settings: Settings, served: ServedFlow, log_file: Path, before: Callable[[], None]
) -> ForkedChild:
    """Fork a worker whose stderr, and so whose log, is a file; `before` runs in it, first."""

    def main(channel: Any) -> int:
        with log_file.open("ab") as file:
            os.dup2(file.fileno(), 2)
        logging.root.handlers.clear()  # pytest's, whose files are closed and numbers used anew
        log = open_log(settings.logging, process="worker", flow=served.slug)
        before()
        return worker.main(channel, settings, log, served)

    return fork(partial(main), title=f"pgflowd: worker {served.slug}", death_signal=signal.SIGTERM)


def end_worker(running: RunningWorker) -> None:
    if not running.child.has_ended():
        os.kill(running.pid, 9)
        until(running.child.has_ended, 5)
    running.child.collect()
    try:
        until(lambda: not in_session(running.pid), 5)
    finally:
        kill_session(running.pid)
        running.child.close()


ONE_STEP = """
    import os, signal, subprocess, sys, time
    from pgflowd import Fail, Flow, RetryAfter

    flow = Flow("flow", max_attempts={attempts}, base_delay=0, timeout={timeout})

    @flow.step
    def work(run, ctx):
        {body}

    @flow.step
    def after(work): return work
"""


def one_step(body: str, attempts: int = 1, timeout: int = 5) -> str:
    return ONE_STEP.format(body=in_handler(body), attempts=attempts, timeout=timeout)


def in_handler(body: str) -> str:
    """The lines of a handler's body, as deep as they stand in a module of these tests."""
    lines = body.strip("\n").split("\n")
    indent = len(lines[0]) - len(lines[0].lstrip())
    return "\n        ".join(line[indent:] for line in lines)


def failure(worker, run, within_s: float = 12.0):
    """The outcome and text of the first attempt, once its run has failed."""
    assert worker.failed(run, within_s)
    _, outcome, text = worker.attempts(run)[0]
    return outcome, text
