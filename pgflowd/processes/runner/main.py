"""
Executes handlers, one task at a time or async ones together, and can be killed at any moment.

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
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from mmap import mmap
from typing import Any

import setproctitle

from pgflowd.core import context
from pgflowd.core.completion import body_of
from pgflowd.core.definition.spec import LifespanSpec, StepSpec
from pgflowd.core.failure import MAX_MESSAGE_CHARS, clean
from pgflowd.core.traces import ORDINARY_TASK
from pgflowd.core.typed.codec import encode_output
from pgflowd.host.channel import PIECE, Frame
from pgflowd.host.error_trackers import ErrorTracker
from pgflowd.host.logs import set_levels
from pgflowd.processes.runner.completion import KEPT_S, Sessions
from pgflowd.processes.runner.context import RunnerContext
from pgflowd.processes.runner.execution import (
    arguments_of,
    flush_streams,
    head_of_error,
    leave,
    packed_result,
    refuse_swallowed,
    traceback_of,
    traced,
)
from pgflowd.processes.runner.handler import Caller, Resources
from pgflowd.processes.runner.leftovers import Leftovers, end_children, peak_kb
from pgflowd.processes.runner.shared_loop import SharedLoop
from pgflowd.processes.runner.task_stream import LogForwarder
from pgflowd.processes.runner.worker_socket import WorkerGone, WorkerSocket


class RunnerProcess:
    """A runner, from its first task to the end of its socket."""

    def __init__(
        self,
        flow: str,
        title: str,
        worker_socket: WorkerSocket,
        max_output_bytes: int,
        caps: frozenset[str] = frozenset(),
        memory: mmap | None = None,
        sentry: str = "off",
        *,
        are_traced: bool = False,
        lifespan: LifespanSpec | None = None,
    ) -> None:
        self._flow, self._start_of_title = flow, title
        self._socket = worker_socket
        self._max_output_bytes, self._caps = max_output_bytes, caps
        self._memory = memory  # for tasks that share the runner
        self._caller = Caller()
        self._lifespan, self._resources = lifespan, Resources(lifespan)
        self._log_forwarder = LogForwarder(worker_socket)
        self._sessions = Sessions()
        self._tracker = ErrorTracker(sentry)
        self._trace = ORDINARY_TASK if are_traced else None  # of a task of which nothing is told

    def live(
        self,
        steps: Mapping[str, StepSpec],
        levels: Mapping[str, str],
        *,
        is_debug: bool = False,
    ) -> None:
        """Execute tasks until the worker closes the socket."""
        self._caller.catch_sigterm()
        faulthandler.enable(file=2)
        _choose_levels(levels, is_debug)
        call_all(context.after_fork)  # before the lifespan, which would use what the parent has
        if not self._enter():
            return
        self._leftovers = leftovers = Leftovers()
        has_conditions = any(step.has_condition for step in steps.values())
        self._wants_changes = is_debug or has_conditions
        self._title("idle")
        with contextlib.suppress(WorkerGone):
            self._socket.send({"say": "ready"})
            self._execute_tasks(steps, leftovers)
        if not self._socket.is_copy:
            self._leave()
            self._tracker.flush(is_end=True)

    def _enter(self) -> bool:
        """Begin the lifespan; tell the worker if that fails, which is no task's fault."""
        if self._lifespan is None:
            return True
        self._title("begins")
        self._forward_logs()
        self._caller.resources = self._resources
        try:
            self._resources.enter()
        except BaseException as error:
            if self._socket.is_copy:
                leave(error)
            text = clean(f"{type(error).__name__}: {error}", MAX_MESSAGE_CHARS)
            head = {"say": "unready", "text": text, "traceback": traceback_of(error)}
            with contextlib.suppress(WorkerGone):
                self._socket.send(head)
            flush_streams()
            return False
        flush_streams()
        return not self._socket.is_copy

    def _leave(self) -> None:
        """End the lifespan; what it raises is printed, since no task is there that could fail."""
        self._title("ends")
        try:
            self._resources.leave()
        except BaseException as error:
            name = self._lifespan and self._lifespan.name
            sys.stderr.write(f"E433 the lifespan {name} failed at its end: {traceback_of(error)}")
        flush_streams()

    def _execute_tasks(self, steps: Mapping[str, StepSpec], leftovers: Leftovers) -> None:
        frame: Frame | None = None
        while True:
            if frame is None:
                if self._sessions.has_kept and self._socket.is_silent(KEPT_S):
                    self._sessions.close_kept()
                frame = self._socket.next_task()
            if frame.head["shared"]:
                frame = self._share(steps, frame, leftovers)
                self._caller.be_idle()
                call_all(context.around_tasks)
                continue
            head, body = self._run(steps, frame)
            if self._socket.is_copy:
                return
            leftovers.accepted_threads = self._tracker.threads
            if "left" not in head:
                head["left"] = leftovers.found(head["peak_kb"])
            if self._resources.is_spoiled:
                head["left"].setdefault("reset", []).append("tasks in the event loop")
            self._send(head, body)
            self._caller.be_idle()
            self._tracker.flush()
            self._sessions.clean()
            self._title("idle")
            frame = None

    def _share(
        self, steps: Mapping[str, StepSpec], frame: Frame, leftovers: Leftovers
    ) -> Frame | None:
        """Execute async tasks in one event loop, until it is to be closed."""
        assert self._memory is not None

        def context_of(frame: Frame) -> RunnerContext:
            return self._context(steps, frame)

        self._title("shared", "/")
        loop = SharedLoop(
            steps,
            context_of,
            self._socket,
            self._max_output_bytes,
            leftovers,
            self._memory,
            self._tracker,
            self._resources,
            wants_changes=self._wants_changes,
        )
        try:
            return loop.run(frame, self._caller)
        finally:
            self._title("idle")

    def _context(self, steps: Mapping[str, StepSpec], frame: Frame) -> RunnerContext:
        self._forward_logs()
        of_runner = self._sessions.open, self._max_output_bytes, self._caps, self._trace
        value = self._resources.value
        return RunnerContext(self._flow, steps, frame, self._socket, *of_runner, value)

    def _forward_logs(self) -> None:
        if self._log_forwarder not in logging.root.handlers:  # a task may reconfigure logging
            logging.root.addHandler(self._log_forwarder)

    def _run(self, steps: Mapping[str, StepSpec], frame: Frame) -> tuple[dict[str, Any], bytes]:
        """Call the handler; return the head and body of `done`."""
        task = frame.head
        before_s = time.process_time()
        self._title(f"{task['step']}#{task['index']} {task['run'][-8:]}", "/")
        ctx = self._context(steps, frame)
        self._log_forwarder.begin_task()
        context.database_of_task = ctx.database
        with traced(ctx), self._tracker.scope(ctx):
            try:
                call_all(context.around_tasks)
                body = self._call(steps[task["step"]], frame, ctx)
                head, body = self._complete(ctx, body, before_s)
            except WorkerGone:
                raise
            except BaseException as error:
                if self._socket.is_copy:
                    leave(error)
                ctx.roll_back()
                body, head = b"", head_of_error(error, ctx)
                self._tracker.capture(error, ctx, head)
        ctx.tell_progress()
        with contextlib.suppress(Exception):  # the outcome is known
            call_all(context.around_tasks)
        flush_streams()
        head["cpu_s"] = round(time.process_time() - before_s, 6)
        head["peak_kb"] = peak_kb()
        if unseen := self._log_forwarder.budget.unseen:
            head["unseen"] = unseen
        return {"say": "done", "token": task["token"], **head}, body

    def _call(self, step: StepSpec, frame: Frame, ctx: RunnerContext) -> bytes:
        arguments = arguments_of(step, frame, ctx)
        value = None
        if arguments is not None:
            value = self._caller.call(step.handler, arguments, ctx.cancelled)
        refuse_swallowed(ctx)
        return encode_output(step.codec, value, max_bytes=self._max_output_bytes).encode()

    def _complete(
        self, ctx: RunnerContext, body: bytes, before_s: float
    ) -> tuple[dict[str, Any], bytes]:
        """Complete the task over the handler's connection, if it has one."""
        conn = ctx.take_conn()
        if conn is None:
            return {"outcome": "completed"}, body
        from pgflowd.processes.runner.completion import complete, completion_of

        left = self._leftovers.found(peak_kb())
        if "children" in left:  # nothing outlives its task
            end_children()
        cpu_s = round(time.process_time() - before_s, 6)
        try:
            wants = self._wants_changes or ctx.is_traced
            head = complete(conn, completion_of(ctx, body, wants, cpu_s, peak_kb()))
        except BaseException:
            conn.close()
            raise
        self._sessions.give_back(conn, may_keep=not left)
        return {**head, "left": left}, body_of(head, body)

    def _send(self, head: dict[str, Any], body: bytes) -> None:
        if len(body) > PIECE:  # the worker says when it has room for it
            self._socket.send({"say": "finished", "token": head["token"], "size": len(body)})
            self._socket.wait_until_taken()
        self._socket.send_bytes(packed_result(head, body))

    def _title(self, what: str, joint: str = " ") -> None:
        setproctitle.setproctitle(f"{self._start_of_title}{joint}{what}")


def call_all(hooks: Sequence[Callable[[], None]]) -> None:
    for hook in hooks:
        hook()


def _choose_levels(levels: Mapping[str, str], is_debug: bool) -> None:
    """
    Forward records from level info on; at debug, every record of `ctx.log`. What the config says
    of a logger wins over what the module has set.
    """
    if logging.root.level == logging.WARNING:  # Python's default
        logging.root.setLevel(logging.INFO)
    if is_debug:
        logging.getLogger("pgflowd").setLevel(logging.DEBUG)
    set_levels(levels)
