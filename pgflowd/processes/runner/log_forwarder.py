"""Sends what handlers log to the worker, as much of it as a worker can read besides its work."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from typing import Any

from pgflowd.core.line_budget import LineBudget, LinePace
from pgflowd.host.open_telemetry import current_span
from pgflowd.processes.runner.task_stream import CURRENT
from pgflowd.processes.runner.worker_socket import WorkerSocket

MAX_RECORD_CHARS = 8000  # of one log record of a handler
MAX_LOGGER_CHARS = 200  # of the name of its logger
LATE_LINES = 100  # a second, of what is too much for the log: its last lines are kept
_LEVELS = ((logging.ERROR, "error"), (logging.WARNING, "warning"), (logging.INFO, "info"))


class LogForwarder(logging.Handler):
    """Sends what handlers log to the worker."""

    def __init__(self, worker_socket: WorkerSocket) -> None:
        super().__init__()
        self._socket = worker_socket
        self.begin_task()

    def begin_task(self) -> None:
        """A new task begins, which has its runner for itself."""
        self.budget, self._late_pace = LineBudget(), LinePace(LATE_LINES, LATE_LINES)

    def emit(self, record: logging.LogRecord) -> None:
        level = next((name for least, name in _LEVELS if record.levelno >= least), "debug")
        try:
            text = self.format(record)[:MAX_RECORD_CHARS]
        except Exception as error:
            text = f"(a record that cannot be formatted: {type(error).__name__})"
        text, name = (
            some.encode("utf-8", "backslashreplace").decode()
            for some in (text, str(record.name)[:MAX_LOGGER_CHARS])
        )
        if self._socket.is_copy:  # a process that the handler forked shares our stderr
            with contextlib.suppress(OSError):
                os.write(2, f"{record.levelname} {name}: {text}\n".encode())
            return
        note: dict[str, Any] = {"level": level, "logger": name, "text": text}
        if span := current_span():
            note |= span._asdict()
        if ctx := CURRENT.get():
            if not ctx.output.budget.take(len(text)):
                return
            note["token"] = ctx.token
        elif not self.budget.take(len(text)):
            if not self._late_pace.may_pass(time.monotonic()):
                return
            note["late"] = True
        self._socket.note(note)
