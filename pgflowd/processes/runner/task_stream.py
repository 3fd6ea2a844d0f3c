"""
Standard output and standard error of a process in which several tasks may share an event loop.

What a task prints goes to the worker line by line, under the task's own token. What no task prints,
and what is written past these streams, by C code or by a child process, goes to the pipe.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from pgflowd.core.output_stream import LINE_EXTRA, MAX_TAIL_BYTES, LineBudget, Pace
from pgflowd.host.open_telemetry import current_span
from pgflowd.processes.runner.worker_socket import WorkerSocket

if TYPE_CHECKING:
    from pgflowd.processes.runner.context import RunnerContext


MAX_LINE_CHARS = 8000  # of one record; of a longer line the rest is left out

CURRENT: ContextVar[RunnerContext | None] = ContextVar("CURRENT", default=None)  # if they share

Send = Callable[[str, str, bool], None]  # (stream, line, whether it is too much for the log)


class TaskOutput:
    """The output of one task, its threads included, as far as it is logged."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._lines = {"stdout": "", "stderr": ""}  # that have not ended
        self._lock = threading.Lock()
        self.budget = LineBudget()
        self._late: deque[tuple[str, str]] = deque()  # the last lines that were too much
        self._late_room = MAX_TAIL_BYTES

    def write(self, stream: str, text: str) -> None:
        with self._lock:
            *lines, rest = (self._lines[stream] + text).split("\n")
            self._lines[stream] = rest[:MAX_LINE_CHARS]
            for line in lines:
                self._keep(stream, line)

    def finish(self) -> int:
        """Send what has no end of line; return how many bytes were too many."""
        with self._lock:
            for stream, line in self._lines.items():
                if line:
                    self._keep(stream, line)
            self._lines = {"stdout": "", "stderr": ""}
            for stream, line in self._late:
                self._send(stream, line, True)
            self._late.clear()
            return self.budget.unseen

    def _keep(self, stream: str, line: str) -> None:
        is_logged = self.budget.take(len(line))
        text = line[:MAX_LINE_CHARS].encode("utf-8", "backslashreplace").decode()
        if is_logged:
            self._send(stream, text, False)
            return
        self._late.append((stream, text))
        self._late_room -= len(text) + LINE_EXTRA
        while self._late_room < 0:
            self._late_room += len(self._late.popleft()[1]) + LINE_EXTRA


class TaskStream(io.TextIOWrapper):
    """A text stream of whole lines that never fails to encode, and knows whose a text is."""

    task_stream = "stdout"

    @staticmethod
    def open(number: int) -> TaskStream:
        """Open the stream of a descriptor, 1 or 2."""
        raw = open(number, "wb", buffering=8192, closefd=False)  # noqa: SIM115
        stream = TaskStream(raw, errors="backslashreplace", line_buffering=True)
        stream.task_stream = "stderr" if number == 2 else "stdout"
        return stream

    def write(self, text: str) -> int:
        ctx = CURRENT.get()
        if ctx is None:
            return super().write(text)
        ctx.output.write(self.task_stream, text)
        return len(text)


# Sends what handlers log to the worker, as much of it as a worker can read besides its work.
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
        self.budget, self._late_pace = LineBudget(), Pace(LATE_LINES, LATE_LINES)

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
