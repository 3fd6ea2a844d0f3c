"""
The runner's end of the socket to its worker.

It blocks, since a runner has nothing else to wait for. Threads of a handler may log, ask and check
for a stop too: each frame is sent under a lock, and a thread that asks holds another lock until its
answer arrives, so no other thread reads it. Signal handlers of a handler may log, and may raise, as
alarms do: no frame stays half sent, and an answer that no thread waits for is dropped. A
copy of the runner that a handler made by `os.fork` sees another pid, and sends nothing.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import contextlib
import io
import logging
import os
import select
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from pgflowd.core.output_stream import LINE_EXTRA, MAX_TAIL_BYTES, LineBudget, Pace
from pgflowd.host.channel import Frame, Frames, pack, receive
from pgflowd.host.open_telemetry import current_span

if TYPE_CHECKING:
    from pgflowd.processes.runner.context import RunnerContext


_NO_LIMIT = 2**32  # the worker is trusted
_RAISING = tuple(map(int, (signal.SIGALRM, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)))


class WorkerGone(Exception):
    """The worker closed the socket: the runner ends."""


class WorkerSocket:
    """Frames to and from the worker."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(True)
        self._socket = end
        self._frames = Frames(_NO_LIMIT)
        self._sending = threading.RLock()
        self._unsent: list[bytes] = []
        self._reading = threading.Lock()  # held from a question to its answer
        self._is_owed = False  # whether an answer is still to come
        self._pid = os.getpid()
        self._pass_on: Callable[[Frame], None] | None = None
        self._put_back: list[Frame] = []
        self.is_stopping = False

    @property
    def is_copy(self) -> bool:
        """Whether this process is a fork of the runner, made by a handler."""
        return os.getpid() != self._pid

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, head: dict[str, Any], body: bytes = b"") -> None:
        self.send_bytes(pack(head, body))

    def send_bytes(self, data: bytes) -> None:
        """Send one or more frames."""
        if self.is_copy:
            return
        try:
            with self._sending:
                self._unsent.append(data)
                if len(self._unsent) > 1:  # a finalizer logs while its thread sends
                    return
                while self._unsent:
                    self._socket.sendall(self._unsent[0])
                    del self._unsent[0]
        except OSError as error:
            raise WorkerGone from error

    def note(self, head: dict[str, Any]) -> None:
        """Send a log record while a handler runs."""
        self.tell({"say": "note", **head})

    def tell(self, head: dict[str, Any], body: bytes = b"") -> None:
        """Send something that is not answered, while a handler runs."""
        with _signals_held():
            self.send(head, body)

    @contextlib.contextmanager
    def passing_on(self, pass_on: Callable[[Frame], None]) -> Iterator[None]:
        """Pass on frames that are read while a handler waits for an answer, in its thread."""
        self._pass_on = pass_on
        try:
            yield
        finally:
            self._pass_on = None

    def poll(self) -> list[Frame]:
        """The frames that have come until now; never wait."""
        if self.is_copy or not self._reading.acquire(blocking=False):
            return []  # a thread waits for an answer, and passes on what it reads
        try:
            with contextlib.suppress(BlockingIOError):
                self._receive(socket.MSG_DONTWAIT)
            frames, self._put_back = self._put_back, []
            while frame := self._frames.take():
                if frame.head["do"] in ("stopping", "answer"):
                    self._handle(frame)
                else:
                    frames.append(frame)
            return frames
        finally:
            self._reading.release()

    def put_back(self, frame: Frame) -> None:
        """Keep a frame for the next task."""
        self._put_back.append(frame)

    def wait_until_taken(self) -> None:
        """Wait until the worker wants the large result that was announced."""
        self._next("take", [])

    def is_silent(self, for_s: float) -> bool:
        """Whether the worker sends nothing for so long."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(for_s * 1000)

    def next_task(self) -> Frame:
        with self._reading:
            self._is_owed = False
            return self._next("task", self._put_back)

    def ask(self, head: dict[str, Any], body: bytes = b"") -> Frame:
        """Send a question to the worker, and wait for the answer."""
        with self._reading:
            self._answer()  # to an earlier question that was interrupted
            with _signals_held():
                self.send({"say": "ask", **head}, body)
                self._is_owed = True
            answer = self._answer()
            assert answer is not None
            return answer

    def check_stopping(self) -> bool:
        """Whether the worker has announced a stop until now; never wait."""
        if self.is_copy or self.is_stopping or not self._reading.acquire(blocking=False):
            return self.is_stopping
        try:
            with contextlib.suppress(OSError):  # nothing there
                self._frames.feed(receive(self._socket, socket.MSG_DONTWAIT))
            while frame := self._frames.take():
                self._handle(frame)
        finally:
            self._reading.release()
        return self.is_stopping

    def _next(self, kind: str, first: list[Frame]) -> Frame:
        """Wait for a frame of a kind, and act on others; these come before those of the socket."""
        while True:
            while frame := first.pop(0) if first else self._frames.take():
                if frame.head["do"] == kind:
                    return frame
                self._handle(frame)
            self._receive()

    def _answer(self) -> Frame | None:
        """Wait for the answer that is still to come, if there is one."""
        answer = None
        while self._is_owed:
            with contextlib.suppress(ConnectionError):
                self._socket.recv(1, socket.MSG_PEEK)  # an alarm may raise here: no byte is lost
            with _signals_held():
                self._receive()
                while frame := self._frames.take():
                    answer = self._handle(frame) or answer
        return answer

    def _receive(self, flags: int = 0) -> None:
        try:
            piece = receive(self._socket, flags)
        except BlockingIOError:
            raise
        except OSError as error:
            raise WorkerGone from error
        if not piece:
            raise WorkerGone
        self._frames.feed(piece)

    def _handle(self, frame: Frame) -> Frame | None:
        """Act on a frame or pass it on; return it if it is an answer."""
        kind = frame.head["do"]
        if kind == "answer":
            self._is_owed = False
            return frame
        if kind == "stopping":
            self.is_stopping = True
        elif self._pass_on is not None:
            self._pass_on(frame)
        elif kind == "ping":  # sent while the loop was being closed
            self.send({"say": "pong"})
        return None


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """Block signals for which a user's handler may have set signal handlers that raise."""
    before = _signal.pthread_sigmask(signal.SIG_BLOCK, _RAISING)
    try:
        yield
    finally:
        _signal.pthread_sigmask(signal.SIG_SETMASK, before)


# Standard output and standard error of a process in which several tasks may share an event loop.
#
# What a task prints goes to the worker line by line, under the task's own token. What no task
# prints, and what is written past these streams, by C code or by a child process, goes to the pipe.
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
