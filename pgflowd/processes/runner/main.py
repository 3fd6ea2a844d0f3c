"""
Executes handlers, one task at a time, and can be killed at any moment without harm.

The zygote forks it with the flow's module imported and one socket to the worker; it has no thread
and no event loop of ours. It reads a task, calls the handler, encodes and checks the JSON once,
checks what the task left behind, and sends `done`. It ends when its socket is closed. Anything that
a handler raises, `sys.exit` included, becomes a report. Nothing that a handler does to this process
affects another one.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import resource
import sys
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

import setproctitle

from pgflowd.core import context
from pgflowd.core.definition.arguments import arguments_for
from pgflowd.core.definition.spec import StepSpec
from pgflowd.core.failure import failure_of
from pgflowd.core.json import SQL_NULL, decode, encode
from pgflowd.host.frame import Frame
from pgflowd.processes.runner.context import LogForwarder, RunnerContext
from pgflowd.processes.runner.handler import Caller
from pgflowd.processes.runner.leftovers import Leftovers
from pgflowd.processes.runner.raised import shortened, traceback_of
from pgflowd.processes.runner.worker_socket import WorkerGone, WorkerSocket

SHORT_TRACEBACK = 2000  # of a traceback that is too long for a frame's head


class TaskGiven(NamedTuple):
    """The decoded input of a task, of which arguments are made."""

    input: Any
    flow_input: Any


class RunnerProcess:
    """A runner, from its first task to the end of its socket."""

    def __init__(
        self, flow: str, title: str, worker_socket: WorkerSocket, max_output_bytes: int
    ) -> None:
        self._flow, self._start_of_title = flow, title
        self._socket = worker_socket
        self._max_output_bytes = max_output_bytes
        self._caller = Caller()
        self._log_forwarder = LogForwarder(worker_socket)

    def live(self, steps: Mapping[str, StepSpec], *, is_debug: bool = False) -> None:
        """Execute tasks until the worker closes the socket."""
        self._caller.catch_sigterm()
        faulthandler.enable(file=2)
        _choose_levels(is_debug)
        leftovers = Leftovers()
        self._title("idle")
        with contextlib.suppress(WorkerGone):
            self._socket.send({"say": "ready"})
            while True:
                frame = self._socket.next_task()
                head, body = self._run(steps, frame)
                if self._socket.is_copy:
                    return
                head["left"] = leftovers.found(head["peak_kb"])
                self._send(head, body)
                self._title("idle")

    def _run(self, steps: Mapping[str, StepSpec], frame: Frame) -> tuple[dict[str, Any], bytes]:
        """Call the handler; return the head and body of `done`."""
        task = frame.head
        before_s = time.process_time()
        self._title(f"{task['step']}#{task['index']} {task['run'][-8:]}", "/")
        ctx = RunnerContext(self._flow, steps, frame, self._socket, _connect)
        context.database_of_task = ctx.database
        if self._log_forwarder not in logging.root.handlers:  # a task may reconfigure logging
            logging.root.addHandler(self._log_forwarder)
        try:
            body = self._call(steps[task["step"]], frame, ctx)
            head: dict[str, Any] = {"outcome": "completed"}
        except WorkerGone:
            raise
        except BaseException as error:
            if self._socket.is_copy:
                _leave(error)
            body, head = b"", _failure_head(error, is_last=task["attempt"] >= task["max_attempts"])
        _flush()
        head["cpu_s"] = round(time.process_time() - before_s, 6)
        head["peak_kb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return {"say": "done", "token": task["token"], **head}, body

    def _call(self, step: StepSpec, frame: Frame, ctx: RunnerContext) -> bytes:
        split = frame.head["split"]
        of_flow = SQL_NULL if split is None else decode(frame.body[split:])
        given = TaskGiven(decode(frame.body[:split]), of_flow)
        arguments = arguments_for(step, given, ctx.flow_input, ctx)
        succeeded = False
        try:
            value = self._caller.call(step.handler, arguments, ctx.cancelled)
            body = encode(value, max_bytes=self._max_output_bytes).encode()
            succeeded = True
        finally:
            if not self._socket.is_copy:
                ctx.settle(succeeded)
        return body

    def _send(self, head: dict[str, Any], body: bytes) -> None:
        try:
            self._socket.send(head, body)
        except ValueError:  # the head is too long, by characters of several bytes
            head["traceback"] = shortened(head.get("traceback", ""), SHORT_TRACEBACK)
            self._socket.send(head, body)

    def _title(self, what: str, joint: str = " ") -> None:
        setproctitle.setproctitle(f"{self._start_of_title}{joint}{what}")


def _failure_head(error: BaseException, *, is_last: bool) -> dict[str, Any]:
    """Return the head of `done` for an exception."""
    failure = failure_of(error, is_last=is_last)
    head: dict[str, Any] = {
        "outcome": "failed",
        "error_type": failure.error_type,
        "error_message": failure.message,
        "traceback": traceback_of(error),
    }
    if not failure.retry:
        head["retry"] = False
    if failure.delay_s is not None:
        head["delay_s"] = failure.delay_s
    return head


def _leave(error: BaseException) -> NoReturn:
    """End a process that the handler forked, as Python ends one that an exception leaves."""
    code = error.code if isinstance(error, SystemExit) else error
    if not isinstance(code, int | None):
        with contextlib.suppress(Exception):
            sys.stderr.write(f"{code}\n" if isinstance(error, SystemExit) else traceback_of(error))
        code = 1
    _flush()
    os._exit((code or 0) & 0xFF)


def _choose_levels(is_debug: bool) -> None:
    """Forward records from level info on; at debug, every record of `ctx.log`."""
    if logging.root.level == logging.WARNING:  # Python's default
        logging.root.setLevel(logging.INFO)
    if is_debug:
        logging.getLogger("pgflowd").setLevel(logging.DEBUG)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:  # noqa: SIM105  half a microsecond
            stream.flush()
        except Exception:
            pass


def _connect(conninfo: str, name: str) -> Any:
    """Open a connection for a handler, as `psycopg.connect` does."""
    from pgflowd.db.connection import connect

    return connect(conninfo, name=name, autocommit=False)
