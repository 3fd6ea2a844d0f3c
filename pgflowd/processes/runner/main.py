"""
Runner: runs handlers, one task at a time, and can be killed at any moment without harm.

It is forked by the zygote, has the flow's module and one socket to its worker, and no thread
and no loop of ours. It reads a task, calls the handler, makes and checks the JSON once, looks
what the task left behind, and says `done`. The end of the socket is its own. Whatever a handler
raises, also `sys.exit`, becomes a report; whatever it does to this process, nobody else minds.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import resource
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, NoReturn

import setproctitle

from pgflowd.core.definition.arguments import arguments_for
from pgflowd.core.definition.spec import StepSpec
from pgflowd.core.failure import clean, failure_of
from pgflowd.core.json.sql_null import SQL_NULL
from pgflowd.core.json.values import decode, encode
from pgflowd.core.worker.failure_text import LONGEST_TRACEBACK
from pgflowd.host.frame import Frame
from pgflowd.processes.runner.context import Notes, RunnerContext
from pgflowd.processes.runner.handler import Caller
from pgflowd.processes.runner.leftovers import Leftovers
from pgflowd.processes.runner.worker_socket import WorkerGone, WorkerSocket

SHORT_TRACEBACK = 2000  # of one that is too long for a frame's head
MOST_FRAMES = 1000  # as deep as Python lets anybody go who does not ask for more

_OURS = str(Path(__file__).parents[2])


class TaskGiven(NamedTuple):
    """What arguments are made of."""

    input: Any
    flow_input: Any


class RunnerProcess:
    """One process's life."""

    def __init__(self, flow: str, title: str, line: WorkerSocket, most_output: int) -> None:
        self._flow, self._start_of_title = flow, title
        self._line = line
        self._most_output = most_output
        self._caller = Caller()
        self._notes = Notes(line)

    def live(self, steps: Mapping[str, StepSpec], *, is_debug: bool = False) -> None:
        """Run tasks until the worker closes the socket."""
        self._caller.catch_sigterm()
        faulthandler.enable(file=2)
        _choose_levels(is_debug)
        leftovers = Leftovers()
        self._title("idle")
        with contextlib.suppress(WorkerGone):
            self._line.send({"say": "ready"})
            while True:
                frame = self._line.next_task()
                head, body = self._run(steps, frame)
                if self._line.is_copy:
                    return
                head["left"] = leftovers.found(head["peak_kb"])
                self._tell(head, body)
                self._title("idle")

    def _run(self, steps: Mapping[str, StepSpec], frame: Frame) -> tuple[dict[str, Any], bytes]:
        """Call the handler; return the head and body of `done`."""
        task = frame.head
        before_s = time.process_time()
        self._title(f"{task['step']}#{task['index']} {task['run'][-8:]}", "/")
        ctx = RunnerContext(self._flow, steps, frame, self._line, _connect)
        if self._notes not in logging.root.handlers:  # the last task may have configured logging
            logging.root.addHandler(self._notes)
        try:
            body = self._call(steps[task["step"]], frame, ctx)
            head: dict[str, Any] = {"outcome": "completed"}
        except WorkerGone:
            raise
        except BaseException as error:
            if self._line.is_copy:
                _leave(error)
            body, head = b"", _told(error)
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
            body = encode(value, max_bytes=self._most_output).encode()
            succeeded = True
        finally:
            if not self._line.is_copy:
                ctx.settle(succeeded)
        return body

    def _tell(self, head: dict[str, Any], body: bytes) -> None:
        try:
            self._line.send(head, body)
        except ValueError:  # a head too long, by characters that take many bytes
            head["traceback"] = head.get("traceback", "")[-SHORT_TRACEBACK:]
            self._line.send(head, body)

    def _title(self, what: str, joint: str = " ") -> None:
        setproctitle.setproctitle(f"{self._start_of_title}{joint}{what}")


def _told(error: BaseException) -> dict[str, Any]:
    """The head of `done` for an exception."""
    failure = failure_of(error)
    said: dict[str, Any] = {
        "outcome": "failed",
        "error_type": failure.error_type,
        "error_message": failure.message,
        "traceback": _traceback(error),
    }
    if not failure.retry:
        said["retry"] = False
    if failure.delay_s is not None:
        said["delay_s"] = failure.delay_s
    return said


def _traceback(error: BaseException) -> str:
    """The traceback from the user's first line on; of a long one, its end."""
    try:
        trace = _theirs(error.__traceback__)
        lines = traceback.format_exception(type(error), error, trace, limit=-MOST_FRAMES)
    except BaseException as trouble:
        return f"(no traceback: {type(trouble).__name__})"
    text = "".join(lines)[-LONGEST_TRACEBACK:]
    return clean(text, LONGEST_TRACEBACK)


def _theirs(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        trace = trace.tb_next
    return trace


def _leave(error: BaseException) -> NoReturn:
    """End a process that the handler forked, as Python ends any that an exception leaves."""
    code = error.code if isinstance(error, SystemExit) else error
    if not isinstance(code, int | None):
        with contextlib.suppress(Exception):
            sys.stderr.write(f"{code}\n" if isinstance(error, SystemExit) else _traceback(error))
        code = 1
    _flush()
    os._exit((code or 0) & 0xFF)


def _choose_levels(is_debug: bool) -> None:
    """Pass on what is logged from level info on; of `ctx.log`, at debug, everything."""
    if logging.root.level == logging.WARNING:  # nobody chose one
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
