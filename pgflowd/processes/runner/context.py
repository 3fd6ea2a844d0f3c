"""
Runner context: the `ctx` of a handler in a daemon; see `core.context` for what it promises.

What is not known here is asked of the worker: the run's input, a step's output, and where to
connect. A connection of `conn()` is the runner's own: committed when the handler has returned
what can be stored, rolled back when it raises, and closed after the task.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from pgflowd.core.context import refuse_unknown_step
from pgflowd.core.json.unpatched import loads
from pgflowd.errors import RunError
from pgflowd.host.frame import Frame
from pgflowd.processes.runner.handler import Stop
from pgflowd.processes.runner.worker_socket import WorkerSocket

MOST_NOTE = 8000  # characters of one record
_LEVELS = ((logging.ERROR, "error"), (logging.WARNING, "warning"), (logging.INFO, "info"))


class Draining:
    """The event `ctx.stopping`: it looks into the socket when it is asked."""

    def __init__(self, line: WorkerSocket) -> None:
        self._line = line
        self._naps = Stop()

    def is_set(self) -> bool:
        return self._line.look()

    def wait(self, timeout: float | None = None) -> bool:
        left_s = timeout
        while not self._line.look():
            slice_s = 0.02 if left_s is None else min(0.02, left_s)
            if slice_s <= 0:
                return False
            self._naps.wait(slice_s)
            left_s = None if left_s is None else left_s - slice_s
        return True


class RunnerContext:
    """One attempt of one task."""

    def __init__(
        self,
        flow: str,
        steps: Collection[str],
        frame: Frame,
        line: WorkerSocket,
        connect: Callable[[str, str], Any],
    ) -> None:
        head = frame.head
        self.run_id: str = head["run"]
        self.flow_slug = flow
        self.step_slug: str = head["step"]
        self.task_index: int = head["index"]
        self.attempt: int = head["attempt"]
        self.max_attempts: int = head["max_attempts"]
        self.token: int = head["token"]
        self.cancelled = Stop()
        self._ends = time.time() + head["timeout"]
        self._steps = steps
        self._line = line
        self._connect = connect
        self._conn: Any = None

    # what few handlers want is made for those that do

    @cached_property
    def deadline(self) -> datetime:
        return datetime.fromtimestamp(self._ends, UTC)

    @property
    def log(self) -> logging.Logger:
        logger = logging.getLogger(f"pgflowd.{self.flow_slug}.{self.step_slug}")
        logger.disabled = False  # as `dictConfig` leaves every logger that it does not name
        return logger

    @cached_property
    def stopping(self) -> Draining:
        return Draining(self._line)

    def flow_input(self) -> Any:
        return self._ask("input")

    def step_output(self, slug: str) -> Any:
        refuse_unknown_step(slug, self._steps, self.flow_slug)
        return self._ask("output", slug)

    def conn(self) -> Any:
        if self._conn is None or self._conn.closed:
            where = self._ask("conn")
            self._conn = self._connect(where["conninfo"], where["name"])
        return self._conn

    def settle(self, succeeded: bool) -> None:
        """End the connection that the handler used: commit what it did, or undo it."""
        conn, self._conn = self._conn, None
        if conn is None or conn.closed:
            return
        try:
            if succeeded:
                conn.commit()
        finally:
            conn.close()

    def _ask(self, what: str, step: str = "") -> Any:
        if self._line.is_copy:
            raise RunError("only the runner itself can ask, not a process it forked", code="E402")
        answer = self._line.ask({"token": self.token, "what": what, "step": step})
        if problem := answer.head.get("problem"):
            raise RunError(problem, code="E409")
        return loads(answer.body) if answer.body else None


class Notes(logging.Handler):
    """Sends what handlers log to the worker."""

    def __init__(self, line: WorkerSocket) -> None:
        super().__init__()
        self._line = line

    def emit(self, record: logging.LogRecord) -> None:
        level = next((name for least, name in _LEVELS if record.levelno >= least), "debug")
        try:
            text = self.format(record)[:MOST_NOTE]
        except Exception as error:
            text = f"(a record that cannot be formatted: {type(error).__name__})"
        text = text.encode("utf-8", "backslashreplace").decode()
        if self._line.is_copy:  # a process that the handler forked; it has the same stderr
            with contextlib.suppress(OSError):
                os.write(2, f"{record.levelname} {record.name}: {text}\n".encode())
            return
        self._line.note({"level": level, "logger": record.name, "text": text})
