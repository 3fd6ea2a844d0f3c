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
from dataclasses import dataclass, field
from mmap import mmap
from typing import TYPE_CHECKING, Any

import setproctitle

from pgflowd.core import context
from pgflowd.core.completion import body_of
from pgflowd.core.definition.shape import Shape
from pgflowd.core.definition.spec import LifespanSpec, StepSpec
from pgflowd.core.failure import MAX_MESSAGE_CHARS, clean
from pgflowd.core.supervision.tree import ServedFlow
from pgflowd.core.traces import ORDINARY_TASK
from pgflowd.core.typed.codec import encode_output
from pgflowd.host import open_telemetry
from pgflowd.host.channel import PIECE, Frame
from pgflowd.host.error_trackers import ErrorTracker
from pgflowd.host.logs import set_levels
from pgflowd.processes.runner.context import (
    RunnerContext,
    arguments_of,
    flush_streams,
    head_of_error,
    leave,
    packed_result,
    traceback_of,
    traced,
)
from pgflowd.processes.runner.handler import Caller, Resources
from pgflowd.processes.runner.leftovers import Leftovers, end_children, peak_kb
from pgflowd.processes.runner.shared_loop import SharedLoop
from pgflowd.processes.runner.worker_socket import LogForwarder, WorkerGone, WorkerSocket

if TYPE_CHECKING:
    from pgflowd.processes.runner.completion import Sessions

KEPT_S = 5.0  # a session that no task uses; others may need the server's connections more


@dataclass(frozen=True)
class ZygoteOptions:
    """The options of a zygote and its runners."""

    served: ServedFlow
    python_path: Sequence[str]
    secrets: Sequence[str]  # names of variables
    max_output_bytes: int
    oom_score_adj: int
    name: str = "pgflowd"  # of the daemon
    is_debug: bool = False
    levels: Mapping[str, str] = field(default_factory=dict)  # of loggers
    imports: bool = True  # False: each runner imports the module by itself
    is_shared: bool = False  # async tasks share runners
    is_captured: bool = True  # what they print is logged
    caps: frozenset[str] = frozenset()  # of the worker
    service: str | None = None  # of the spans of handlers, if there are traces
    sentry: str = "off"  # which exceptions it gets
    version: tuple[Shape, int] | None = None  # that is served, if not as the code has it


class RunnerProcess:
    """A runner, from its first task to the end of its socket."""

    def __init__(
        self,
        options: ZygoteOptions,
        worker_socket: WorkerSocket,
        memory: mmap | None,
        lifespan: LifespanSpec | None,
    ) -> None:
        self._options, self.flow = options, options.served.slug
        self.socket = worker_socket
        self.max_output_bytes, self.caps = options.max_output_bytes, options.caps
        self.memory = memory  # for tasks that share the runner
        self.steps: Mapping[str, StepSpec] = {}
        self.leftovers: Leftovers  # what is compared after each task, from the lifespan on
        self.wants_changes = False  # of the run of each task, for the log or conditions
        self.caller = Caller()
        self._lifespan, self.resources = lifespan, Resources(lifespan)
        self.log_forwarder = LogForwarder(worker_socket)
        self.sessions: Sessions | None = None  # once a handler has used `ctx.conn()`
        self.tracker = ErrorTracker(options.sentry)
        self._service = options.service  # of the spans of handlers; None: there are no traces
        self.trace = None if self._service is None else ORDINARY_TASK  # of a task without another

    def live(self, steps: Mapping[str, StepSpec]) -> None:
        """Execute tasks until the worker closes the socket."""
        is_debug = self._options.is_debug
        self.caller.catch_sigterm()
        faulthandler.enable(file=2)
        # forward records from level info on; at debug, every record of `ctx.log`
        if logging.root.level == logging.WARNING:  # Python's default
            logging.root.setLevel(logging.INFO)
        if is_debug:
            logging.getLogger("pgflowd").setLevel(logging.DEBUG)
        set_levels(self._options.levels)  # what the config says wins over what the module has set
        call_all(context.after_fork)  # before the lifespan, which would use what the parent has
        if self._service is not None:
            open_telemetry.provide(self._service)
        if not self._enter():
            return
        self.steps, self.leftovers = steps, Leftovers()
        self.wants_changes = is_debug or any(step.has_condition for step in steps.values())
        self._title("idle")
        with contextlib.suppress(WorkerGone):
            self.socket.send({"say": "ready"})
            self._execute_tasks()
        if not self.socket.is_copy:
            self._leave()
            self.tracker.flush(is_end=True)
            if self._service is not None:
                open_telemetry.flush()

    def _enter(self) -> bool:
        """Begin the lifespan; tell the worker if that fails, which is no task's fault."""
        if self._lifespan is None:
            return True
        self._title("begins")
        self._forward_logs()
        self.caller.resources = self.resources
        try:
            self.resources.enter()
        except BaseException as error:
            if self.socket.is_copy:
                leave(error)
            text = clean(f"{type(error).__name__}: {error}", MAX_MESSAGE_CHARS)
            head = {"say": "unready", "text": text, "traceback": traceback_of(error)}
            with contextlib.suppress(WorkerGone):
                self.socket.send(head)
            flush_streams()
            return False
        flush_streams()
        return not self.socket.is_copy

    def _leave(self) -> None:
        """End the lifespan; what it raises is printed, since no task is there that could fail."""
        self._title("ends")
        try:
            self.resources.leave()
        except BaseException as error:
            name = self._lifespan and self._lifespan.name
            sys.stderr.write(f"E433 the lifespan {name} failed at its end: {traceback_of(error)}")
        flush_streams()

    def _execute_tasks(self) -> None:
        frame: Frame | None = None
        while True:
            if frame is None:
                if self.sessions and self.sessions.has_kept and self.socket.is_silent(KEPT_S):
                    self.sessions.close_kept()
                frame = self.socket.next_task()
            if frame.head["shared"]:
                self._title("shared", "/")
                try:  # until the event loop is to be closed
                    frame = SharedLoop(self).run(frame, self.caller)
                finally:
                    self._title("idle")
                self.caller.be_idle()
                call_all(context.around_tasks)
                continue
            head, body = self.run(frame)
            if self.socket.is_copy:
                return
            self.leftovers.accepted_threads = self.tracker.threads
            if "left" not in head:
                head["left"] = self.leftovers.found(head["peak_kb"])
            if self.resources.is_spoiled:
                head["left"].setdefault("reset", []).append("tasks in the event loop")
            if len(body) > PIECE:  # the worker says when it has room for it
                self.socket.send({"say": "finished", "token": head["token"], "size": len(body)})
                self.socket.wait_until_taken()
            self.socket.send_bytes(packed_result(head, body))
            self.caller.be_idle()
            self.tracker.flush()
            if self.sessions is not None:
                self.sessions.clean()
            self._title("idle")
            frame = None

    def make_context(self, frame: Frame) -> RunnerContext:
        """The `ctx` of a task."""
        self._forward_logs()
        return RunnerContext(self, frame)

    def _forward_logs(self) -> None:
        if self.log_forwarder not in logging.root.handlers:  # a task may reconfigure logging
            logging.root.addHandler(self.log_forwarder)

    def run(self, frame: Frame) -> tuple[dict[str, Any], bytes]:
        """Call the handler; return the head and body of `done`."""
        task = frame.head
        before_s = time.process_time()
        self._title(f"{task['step']}#{task['index']} {task['run'][-8:]}", "/")
        ctx = self.make_context(frame)
        self.log_forwarder.begin_task()
        context.database_of_task = ctx.database
        with traced(ctx), self.tracker.scope(ctx):
            try:
                call_all(context.around_tasks)
                step, value = self.steps[task["step"]], None
                arguments = arguments_of(step, frame, ctx)
                if arguments is not None:
                    value = self.caller.call(step.handler, arguments, ctx.cancelled)
                head, body = self._complete(ctx, self.encoded(value, ctx), before_s)
            except WorkerGone:
                raise
            except BaseException as error:
                head, body = self.failed(error, ctx), b""
        ctx.tell_progress()
        with contextlib.suppress(Exception):  # the outcome is known
            call_all(context.around_tasks)
        flush_streams()
        head["cpu_s"] = round(time.process_time() - before_s, 6)
        head["peak_kb"] = peak_kb()
        if unseen := self.log_forwarder.budget.unseen:
            head["unseen"] = unseen
        return {"say": "done", "token": task["token"], **head}, body

    def encoded(self, value: Any, ctx: RunnerContext) -> bytes:
        """What a handler has returned, as JSON."""
        ctx._refuse_swallowed()
        codec = self.steps[ctx.step_slug].codec
        return encode_output(codec, value, max_bytes=self.max_output_bytes).encode()

    def failed(self, error: BaseException, ctx: RunnerContext) -> dict[str, Any]:
        """Undo what a handler that raised did over its connection; return the head of `done`."""
        if self.socket.is_copy:
            leave(error)
        ctx.roll_back()
        head = head_of_error(error, ctx)
        self.tracker.capture(error, ctx, head)
        return head

    def _complete(
        self, ctx: RunnerContext, body: bytes, before_s: float
    ) -> tuple[dict[str, Any], bytes]:
        """Complete the task over the handler's connection, if it has one."""
        conn = ctx.take_conn()
        if conn is None:
            return {"outcome": "completed"}, body
        from pgflowd.processes.runner.completion import complete, report_of

        left = self.leftovers.found(peak_kb())
        if "children" in left:  # nothing outlives its task
            end_children()
        cpu_s = round(time.process_time() - before_s, 6)
        try:
            head = complete(conn, ctx, report_of(ctx, body, cpu_s, peak_kb()))
        except BaseException:
            conn.close()
            raise
        if self.sessions is not None:
            self.sessions.give_back(conn, may_keep=not left)
        return {**head, "left": left}, body_of(head, body)

    def connect(self, conninfo: str, name: str) -> tuple[Any, str]:
        """A connection for `ctx.conn()`, and to which database it leads."""
        if self.sessions is None:
            # few handlers use it, and psycopg takes a while to import
            from pgflowd.processes.runner.completion import Sessions

            self.sessions = Sessions()
        return self.sessions.open(conninfo, name)

    def _title(self, what: str, joint: str = " ") -> None:
        setproctitle.setproctitle(f"{self._options.name}: runner {self.flow}{joint}{what}")


def call_all(hooks: Sequence[Callable[[], None]]) -> None:
    for hook in hooks:
        hook()
