"""
The `ctx` of a handler in a daemon; `core.context` describes its methods.

It requests from the worker the run's input, a step's output and the address of the database.
The connection of `conn()` belongs to the runner. It is committed when the handler has returned a
value that can be stored, rolled back when it raises, and closed after the task.
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

from pgflowd.core.backoff import doubled_s
from pgflowd.core.context import refuse_unknown_step
from pgflowd.core.json import loads
from pgflowd.errors import RunError, Unreachable
from pgflowd.host.frame import Frame
from pgflowd.processes.runner.handler import StopFlag
from pgflowd.processes.runner.task_stream import CURRENT, TaskOutput
from pgflowd.processes.runner.worker_socket import WorkerSocket

MIN_NAP_S, MAX_NAP_S = 0.1, 2.0  # between two tries to get a connection of a full server
MAX_RECORD_CHARS = 8000  # of one log record of a handler
_LEVELS = ((logging.ERROR, "error"), (logging.WARNING, "warning"), (logging.INFO, "info"))


class StopEvent:
    """The event `ctx.stopping`: each question checks the socket."""

    def __init__(self, worker_socket: WorkerSocket) -> None:
        self._socket = worker_socket
        self._slices = StopFlag()

    def is_set(self) -> bool:
        return self._socket.check_stopping()

    def wait(self, timeout: float | None = None) -> bool:
        left_s = timeout
        while not self._socket.check_stopping():
            slice_s = 0.02 if left_s is None else min(0.02, left_s)
            if slice_s <= 0:
                return False
            self._slices.wait(slice_s)
            left_s = None if left_s is None else left_s - slice_s
        return True


class RunnerContext:
    """One attempt of one task."""

    def __init__(
        self,
        flow: str,
        steps: Collection[str],
        frame: Frame,
        worker_socket: WorkerSocket,
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
        self.cancelled = StopFlag()
        self.is_over = False  # of a task that shares its runner: it has ended
        self._ends = time.time() + head["timeout"]
        self._steps = steps
        self._socket = worker_socket
        self._connect = connect
        self._conn: Any = None

    # few handlers use these, so they are made on demand

    @cached_property
    def deadline(self) -> datetime:
        return datetime.fromtimestamp(self._ends, UTC)

    @property
    def log(self) -> logging.Logger:
        logger = logging.getLogger(f"pgflowd.{self.flow_slug}.{self.step_slug}")
        logger.disabled = False  # `dictConfig` disables every logger that it does not name
        return logger

    @cached_property
    def output(self) -> TaskOutput:
        """Where its lines go, if it shares its runner."""
        return TaskOutput(self._send_line)

    def _send_line(self, stream: str, text: str) -> None:
        note = {"level": "info", "stream": stream, "text": text, "token": self.token}
        self._socket.note(note)

    @cached_property
    def stopping(self) -> StopEvent:
        return StopEvent(self._socket)

    def flow_input(self) -> Any:
        return self._ask("input")

    def step_output(self, slug: str) -> Any:
        refuse_unknown_step(slug, self._steps, self.flow_slug)
        return self._ask("output", slug)

    def conn(self) -> Any:
        if self._conn is None or self._conn.closed:
            where = self._ask("conn")
            self._conn = self._connect_when_free(where["conninfo"], where["name"])
        return self._conn

    def _connect_when_free(self, conninfo: str, name: str) -> Any:
        """Wait while the server has too many clients, so that this costs no attempt."""
        nap_s = 0.0
        while True:
            try:
                return self._connect(conninfo, name)
            except Unreachable as error:
                if error.code != "E310" or self.cancelled.is_set():
                    raise
                if not nap_s:
                    self.log.warning("ctx.conn() waits for a free connection: %s", error)
            nap_s = doubled_s(nap_s, MIN_NAP_S, MAX_NAP_S)
            self.cancelled.wait(nap_s)

    def database(self) -> str:
        """The URL of the daemon's database, for a `Client()` of the handler."""
        return str(self._ask("conn")["conninfo"])

    def settle(self, succeeded: bool) -> None:
        """End the connection that the handler used: commit, or roll back."""
        conn, self._conn = self._conn, None
        if conn is None or conn.closed:
            return
        try:
            if succeeded:
                conn.commit()
        finally:
            conn.close()

    def _ask(self, what: str, step: str = "") -> Any:
        if self._socket.is_copy:
            raise RunError(
                "only the runner itself can ask its worker, not a process that the handler forked",
                code="E402",
            )
        if self.is_over:
            raise RunError("the task has ended, so its ctx answers nothing more", code="E411")
        answer = self._socket.ask({"token": self.token, "what": what, "step": step})
        if problem := answer.head.get("problem"):
            raise RunError(problem, code="E409")
        return loads(answer.body) if answer.body else None


class LogForwarder(logging.Handler):
    """Sends what handlers log to the worker."""

    def __init__(self, worker_socket: WorkerSocket) -> None:
        super().__init__()
        self._socket = worker_socket

    def emit(self, record: logging.LogRecord) -> None:
        level = next((name for least, name in _LEVELS if record.levelno >= least), "debug")
        try:
            text = self.format(record)[:MAX_RECORD_CHARS]
        except Exception as error:
            text = f"(a record that cannot be formatted: {type(error).__name__})"
        text = text.encode("utf-8", "backslashreplace").decode()
        if self._socket.is_copy:  # a process that the handler forked shares our stderr
            with contextlib.suppress(OSError):
                os.write(2, f"{record.levelname} {record.name}: {text}\n".encode())
            return
        note: dict[str, Any] = {"level": level, "logger": record.name, "text": text}
        if ctx := CURRENT.get():
            if not ctx.output.take_room(len(text)):
                return
            note["token"] = ctx.token
        self._socket.note(note)
