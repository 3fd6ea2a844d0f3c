"""
The worker's end of a runner: its socket, its output, its pidfd.

It never blocks and parses heads only; bodies are passed on. What it reads becomes events. Output
is logged line by line up to 1 MiB per task; the rest is counted and moved to /dev/null inside the
kernel, so that neither side waits for the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import socket
from collections.abc import Callable
from typing import Any

from pgflowd.core.settings.sections import WorkerSettings
from pgflowd.core.worker import events
from pgflowd.core.worker.run_log import naming
from pgflowd.core.worker.runner_result import fault_of, left_behind, report_of
from pgflowd.core.worker.state import FetchRequest, HandlerRequest
from pgflowd.core.worker.task import Task
from pgflowd.host.frame import PIECE, BadFrame, Frame, Frames, pack, receive
from pgflowd.host.process_tree import kill_tree
from pgflowd.processes.worker.runner_output import LineBudget, Output

_LEVELS = ("debug", "info", "warning", "error")
_REQUESTS = {each.value: each for each in HandlerRequest}
NOTE_EXTRA = 100  # bytes that a record costs besides its text
CLOSED_LIMIT_S = 0.5  # from the end of its socket to that of the runner

Log = Callable[..., None]  # (level, event, **fields)


class RunnerSocket:
    """One runner, seen from its worker."""

    def __init__(
        self,
        id: int,
        emit: Callable[[events.WorkerEvent], None],
        on_end: Callable[[int], None],
        log: Log,
        settings: WorkerSettings,
    ) -> None:
        self.id = id
        self.pid: int | None = None
        self.is_doomed = False  # to be killed once it is forked
        self.was_retired = False
        self.has_left = False  # its last task left something behind
        self.has_ended = False
        self._loop = asyncio.get_running_loop()
        self._emit, self._on_end, self._log = emit, on_end, log
        self._output = settings.handler_output
        self._pidfd = -1
        self.task: Task | None = None
        self._frames = Frames(settings.max_output_bytes)
        self._unsent = bytearray()
        self._has_bad_frame = False
        self._has_request = False
        self._was_reset = False  # it died with something unread in its socket
        self._is_task_last = False  # nothing was sent after the task
        self._is_held = False  # a large result waits until it is to be read
        self._has_announced = False  # that result; it is being read, or waits
        self._socket: socket.socket
        self._budget = LineBudget()
        self._pipes = select.poll()
        self._out: Output
        self._err: Output

    def open(self) -> list[int]:
        """Make socket and pipes; return the runner's ends: socket, stdout, stderr."""
        theirs: list[int] = []
        ours: list[int] = []
        try:
            self._socket, end = socket.socketpair()
            theirs.append(end.detach())
            for inherited in (1, 2):
                if self._output == "inherit":
                    theirs.append(os.dup(inherited))
                else:
                    reading, writing = os.pipe2(os.O_CLOEXEC)
                    ours.append(reading)
                    theirs.append(writing)
        except OSError:
            self._forget([*ours, *theirs])
            raise
        self._socket.setblocking(False)
        if self._output == "inherit":
            self._out, self._err = Output(None, self._budget), Output(None, self._budget)
            return theirs
        is_logged = self._output == "capture"
        self._out = Output(ours[0], self._budget, self._log_line("stdout") if is_logged else None)
        self._err = Output(ours[1], self._budget, self._log_line("stderr") if is_logged else None)
        return theirs

    def _forget(self, numbers: list[int]) -> None:
        for number in numbers:
            os.close(number)
        if hasattr(self, "_socket"):
            self._socket.close()

    def begin(self, pid: int, pidfd: int) -> None:
        """It is forked: watch it."""
        self._socket.setblocking(False)
        self.pid, self._pidfd = pid, pidfd
        self._loop.add_reader(pidfd, self._on_exit)
        self._loop.add_reader(self._socket, self._read)
        for output in (self._out, self._err):
            if output.number >= 0:
                self._loop.add_reader(output.number, self._on_output, output)
                self._pipes.register(output.number, select.POLLIN)
        if self.is_doomed:
            self.kill()

    def send(self, task: Task) -> None:
        """Give it a task."""
        self.task = task
        head = {
            "do": "task",
            "token": task.token,
            "run": task.run_id,
            "step": task.step,
            "index": task.task_index,
            "attempt": task.attempt,
            "max_attempts": task.max_attempts,
            "timeout": task.timeout_s,
            "split": None if task.flow_input is None else len(task.input),
        }
        self._out.begin()
        self._err.begin()
        self._is_task_last, self._has_request = True, False
        self._send(pack(head, task.input + (task.flow_input or b"")))

    def announce_stop(self) -> None:
        self._is_task_last = False
        self._send(pack({"do": "stopping"}))

    def answer(self, token: int, body: bytes, problem: str | None = None) -> None:
        """Send what its handler asked for, if the task is still the same."""
        if self.task and self.task.token == token:
            self._is_task_last = self._has_request = False
            self._send(pack({"do": "answer", "problem": problem}, body))

    def read_result(self, token: int) -> None:
        """Read what lies in the socket; if no result is there, report that."""
        while self._read():
            pass
        if self.task and self.task.token == token and not self._has_announced:
            self._emit(events.NoResultYet(self.id, token))

    def take_result(self) -> None:
        """Read the large result that waits."""
        if self._is_held and self._socket.fileno() >= 0:
            self._loop.add_reader(self._socket, self._read)
        self._is_held = False

    def terminate(self) -> None:
        self._err.keeps_stack = True
        if self.pid is not None and not self.has_ended:
            with contextlib.suppress(OSError):
                os.killpg(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        if self.pid is None:
            self.is_doomed = True
        elif not self.has_ended:
            kill_tree(self.pid)

    def retire(self) -> None:
        """Close the socket: it reads the end and exits."""
        self.was_retired = True
        self._close_socket()

    @property
    def stack(self) -> str:
        return self._err.stack()

    def close(self) -> None:
        """Give back all descriptors."""
        self._close_socket()
        for output in (self._out, self._err):
            if output.number >= 0:
                self._close_output(output)
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def _on_exit(self) -> None:
        """Its pidfd is readable: read everything to the end, then report it."""
        self._loop.remove_reader(self._pidfd)
        self.has_ended = True
        self._is_held = False
        while self._read():
            pass
        self._finish_output()
        if self.task and self._was_reset and self._is_task_last:
            self._emit(events.Undelivered(self.id, self.task.token))
        self._on_end(self.id)

    def _read(self) -> bool:
        """Read one piece; return whether there may be more."""
        if self._is_held or self._socket.fileno() < 0:
            return False
        try:
            piece = receive(self._socket)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            self._was_reset = True
            piece = b""
        if not piece:
            self._loop.remove_reader(self._socket)
            if not self.was_retired:
                self._loop.call_later(CLOSED_LIMIT_S, self._on_closed)
            return False
        if self._has_bad_frame:
            return True
        self._frames.feed(piece)
        try:
            while frame := self._frames.take():
                self._on_frame(frame)
            self._hold_large_result()
        except BadFrame as error:
            self._report_bad_frame("E404" if error.is_too_large else "E903", str(error))
        return True

    def _hold_large_result(self) -> None:
        """Announce a result that does not fit into one piece, and read on when that is wanted."""
        if self.task is None or self._has_announced or self.has_ended:
            return
        announced = self._frames.announced()
        if announced is None or announced[0].get("token") != self.task.token:
            return
        head, size = announced
        if head.get("say") == "done":
            self._is_held = self._has_announced = True
            self._loop.remove_reader(self._socket)
            self._emit(events.ResultAnnounced(self.id, self.task.token, size))

    def _on_closed(self) -> None:
        """Its socket was closed a while ago, and it has not ended."""
        if not self.has_ended:
            self._report_bad_frame("E903", "the runner's socket was closed")

    def _on_frame(self, frame: Frame) -> None:
        head, task = frame.head, self.task
        kind = head.get("say")
        if kind == "ready" and task is None:
            self._emit(events.RunnerReady(self.id))
        elif kind == "note" and head.get("level") in _LEVELS:
            self._note(head)
        elif kind == "ask" and self._may_ask(head) and task:
            self._has_request = True
            request = _REQUESTS[head["what"]]
            step = str(head.get("step", ""))
            self._emit(events.HandlerAsked(FetchRequest(self.id, task.token, request, step)))
        elif kind == "done" and task and head.get("token") == task.token:
            self._done(head, frame.body, task)
        else:
            self._report_bad_frame("E903", f"an unexpected frame: {str(head)[:200]}")

    def _may_ask(self, head: dict[str, Any]) -> bool:
        is_current = self.task is not None and head.get("token") == self.task.token
        return is_current and not self._has_request and str(head.get("what")) in _REQUESTS

    def _done(self, head: dict[str, Any], body: bytes, task: Task) -> None:
        if fault := fault_of(head, body):
            self._report_bad_frame("E903", fault)
            return
        left = left_behind(head)
        self._finish_output()  # while its lines are still known to be of this task
        self.task, self.has_left, self._has_announced = None, any(left), False
        self._emit(events.Done(self.id, report_of(task, head, body), left))

    def _note(self, head: dict[str, Any]) -> None:
        """Log what a handler logged, or between tasks a thread, as long as the megabyte lasts."""
        text = str(head.get("text"))
        if self._budget.room <= 0:
            self._err.unseen += len(text)
            return
        self._budget.room -= len(text) + NOTE_EXTRA
        of_task = naming(self.task) if self.task else {}
        fields = {"logger": str(head.get("logger"))[:200], "text": text, **of_task}
        self._log(head["level"], "task.log", **fields)

    def _report_bad_frame(self, code: str, text: str) -> None:
        self._has_bad_frame = True
        self._emit(events.BadFrameReceived(self.id, code, text))

    def _on_output(self, output: Output) -> None:
        if not output.read():
            self._close_output(output)

    def _close_output(self, output: Output) -> None:
        self._loop.remove_reader(output.number)
        with contextlib.suppress(KeyError):  # it never began
            self._pipes.unregister(output.number)
        output.close()

    def _finish_output(self) -> None:
        """Read the pipes to the end, so that each line belongs to its task."""
        has_more = bool(self._pipes.poll(0))  # one call for both; most tasks print nothing
        unseen = 0
        for output in (self._out, self._err):
            output.finish(has_more)
            unseen += output.unseen
        if self.task and unseen:
            text = f"{unseen} bytes of output more, not logged"
            self._log("warning", "task.output", text=text, **naming(self.task))

    def _log_line(self, stream: str) -> Callable[[str], None]:
        def log(text: str) -> None:
            fields = naming(self.task) if self.task else {}
            self._log("info", "task.output", stream=stream, text=text, **fields)

        return log

    def _send(self, data: bytes) -> None:
        if self._socket.fileno() < 0:
            return
        if not self._unsent:
            try:
                sent = self._socket.send(data, socket.MSG_NOSIGNAL)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError:
                self._was_reset = True
                return  # it has ended; its pidfd shows that
            if sent == len(data):
                return
            data = data[sent:]
            self._loop.add_writer(self._socket, self._on_writable)
        self._unsent += data

    def _on_writable(self) -> None:
        try:
            sent = self._socket.send(self._unsent[:PIECE], socket.MSG_NOSIGNAL)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            sent = len(self._unsent)
        del self._unsent[:sent]
        if not self._unsent:
            self._loop.remove_writer(self._socket)

    def _close_socket(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()
