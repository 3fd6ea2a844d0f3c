"""
Executes async tasks that share a runner: one event loop, one asyncio task for each.

Each task has a context of its own, so what it prints, logs and asks for is known to be its own.
Before each step of the loop the token of its task is written into memory that the worker reads when
the runner has ended: so it knows whose handler blocked or crashed it. What tasks left behind is
looked for when the runner is empty; then the loop is closed, if anything is left in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any

from pgflowd.core import context
from pgflowd.core.completion import body_of
from pgflowd.host.channel import PIECE, STEP, Frame
from pgflowd.processes.runner.context import RunnerContext, arguments_of, packed_result, traced
from pgflowd.processes.runner.handler import Caller, awaited_stack
from pgflowd.processes.runner.leftovers import peak_kb
from pgflowd.processes.runner.worker_socket import CURRENT, WorkerGone

if TYPE_CHECKING:
    from pgflowd.processes.runner.main import RunnerProcess

CLOSE_LIMIT_S = 0.2  # for what tasks left in the loop to end
MAX_NAMES = 20  # of tasks that a runner had
NOBODY = 0

write = STEP.pack_into
Head = dict[str, Any]


class SharedLoop:
    """One event loop, and the tasks in it."""

    def __init__(self, runner: RunnerProcess) -> None:
        self._runner, self._socket = runner, runner.socket
        self._leftovers, self._resources = runner.leftovers, runner.resources
        self._context = contextvars.copy_context()  # that each task's begins as
        self._loop = runner.resources.loop or asyncio.new_event_loop()
        self._thread = threading.get_ident()
        self._tasks: dict[int, tuple[RunnerContext, asyncio.Task[None]]] = {}
        self._ended: list[tuple[Head, bytes]] = []  # to be sent in the next step of the loop
        self._large: dict[int, tuple[Head, bytes]] = {}  # outputs that wait until they are wanted
        self._last: tuple[Head, bytes] | None = None  # to be sent when the loop is closed
        self._had: list[str] = []  # tasks since the runner was empty
        self._next: Frame | None = None  # of a task that needs the process alone
        self._is_gone = False  # the worker

    def run(self, frame: Frame, caller: Caller) -> Frame | None:
        """
        Execute tasks, this one first. Return the frame of one that needs the process alone, or
        None when the runner is empty and the loop was closed, since something was left in it.
        """
        loop = self._loop  # never set as the thread's: that would outlive it
        context.database_of_task = self._database
        self._mark_steps()
        try:
            with self._socket.passing_on(self._came_in_thread), caller.shared(self._end_all):
                self._begin(frame)
                loop.add_reader(self._socket.fileno(), self._read)
                self._read()  # what came along with the first frame is in no socket any more
                while self._next is None and self._last is None and not self._is_gone:
                    with contextlib.suppress(SystemExit, KeyboardInterrupt):  # of a handler's task
                        loop.run_forever()
                loop.remove_reader(self._socket.fileno())
                if self._is_gone:
                    raise WorkerGone
        finally:
            self._close()
        if self._last is not None:
            head, body = self._last
            head["left"] = self._leftovers.found(head["peak_kb"])
            if self._resources.is_spoiled:
                head["left"].setdefault("reset", []).append("tasks in the event loop")
            self._socket.send_bytes(packed_result(*self._with_names(head, body)))
        return self._next

    def _close(self) -> None:
        """End what tasks left in the loop, as far as it ends by itself."""
        loop = self._loop
        if loop is self._resources.loop:
            del loop.call_soon
            self._resources.settle()
            return
        if pending := asyncio.all_tasks(loop):
            for task in pending:
                task.cancel()
            loop.run_until_complete(asyncio.wait(pending, timeout=CLOSE_LIMIT_S))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
        limit = time.monotonic() + CLOSE_LIMIT_S
        while self._leftovers.has_threads() and time.monotonic() < limit:
            time.sleep(0.001)  # threads of asyncio.to_thread end as the loop is closed

    # frames

    def _read(self) -> None:
        try:
            for frame in self._socket.poll():
                self._came(frame)
        except WorkerGone:
            self._leave_loop()

    def _came_in_thread(self, frame: Frame) -> None:
        """A frame was read while a handler waits for an answer to its question."""
        if threading.get_ident() == self._thread and frame.head["do"] == "ping":
            self._came(frame)  # the loop waits for us, and not for a handler
        else:
            self._loop.call_soon_threadsafe(self._came, frame, context=self._context)

    def _came(self, frame: Frame) -> None:
        kind = frame.head["do"]
        if self._last is not None:  # the loop is being closed
            self._socket.put_back(frame)
        elif kind == "task" and frame.head["shared"]:
            self._begin(frame)
        elif kind == "task":
            self._next = frame
            self._loop.stop()
        elif kind == "ping":
            self._send({"say": "pong"})
        elif kind == "cancel" and frame.head["token"] in self._tasks:
            ctx, task = self._tasks[frame.head["token"]]
            ctx.cancelled.set()
            self._send({"say": "stack", "token": ctx.token, "text": awaited_stack(task)})
            task.cancel()
        elif kind == "take" and frame.head["token"] in self._large:
            self._end(*self._large.pop(frame.head["token"]))

    def _send(self, head: Head, body: bytes = b"") -> None:
        try:
            self._socket.send(head, body)
        except WorkerGone:
            self._leave_loop()

    def _leave_loop(self) -> None:
        self._is_gone = True
        self._loop.stop()

    # tasks

    def _begin(self, frame: Frame) -> None:
        ctx = self._runner.make_context(frame)
        ours = self._context.copy()
        ours.run(CURRENT.set, ctx)
        coroutine = self._execute(frame, ctx)
        self._tasks[ctx.token] = ctx, self._loop.create_task(coroutine, context=ours)
        if len(self._had) < MAX_NAMES:
            self._had.append(f"{ctx.step_slug}#{ctx.task_index} of run {ctx.run_id}")

    async def _execute(self, frame: Frame, ctx: RunnerContext) -> None:
        runner = self._runner
        with traced(ctx), runner.tracker.scope(ctx):
            try:
                step = runner.steps[ctx.step_slug]
                arguments = arguments_of(step, frame, ctx)
                value = None if arguments is None else await step.handler(**arguments)
                head, body = await self._complete(ctx, runner.encoded(value, ctx))
            except WorkerGone:
                self._leave_loop()
                return
            except BaseException as error:
                head, body = runner.failed(error, ctx), b""
                self._leftovers.accepted_threads = runner.tracker.threads
        try:
            ctx.tell_progress()
        except WorkerGone:
            self._leave_loop()
        ctx.is_over = True
        unseen = ctx.output.finish()
        head |= {"say": "done", "token": ctx.token, "unseen": unseen, "peak_kb": peak_kb()}
        del self._tasks[ctx.token]
        self._end(head, body)

    async def _complete(self, ctx: RunnerContext, body: bytes) -> tuple[Head, bytes]:
        """Complete the task over the handler's connection, if it has one."""
        conn = ctx.take_conn()
        if conn is None:
            return {"outcome": "completed"}, body
        from pgflowd.processes.runner.completion import complete_async, report_of

        with contextlib.closing(conn):
            head = await complete_async(conn, ctx, report_of(ctx, body, None, peak_kb()))
        return dict(head), body_of(head, body)

    def _end(self, head: Head, body: bytes) -> None:
        if not self._ended:
            self._loop.call_soon(self._send_ended, context=self._context)
        self._ended.append((head, body))

    def _send_ended(self) -> None:
        """Send what has ended in one step of the loop; look around when the runner is empty."""
        ended, self._ended = self._ended, []
        if not self._tasks:
            self._read()
        small = []
        for head, body in ended:
            if len(body) > PIECE and "size" not in head:
                head["size"] = len(body)
                self._large[head["token"]] = head, body
                self._send({"say": "finished", "token": head["token"], "size": len(body)})
            else:
                small.append((head, body))
        if small and not (self._tasks or self._large or self._ended):
            head, body = small.pop()
            head["left"] = self._leftovers.found(head["peak_kb"])
            ours, resources = self._loop, self._resources
            in_loop = resources.pending() if ours is resources.loop else asyncio.all_tasks(ours)
            if in_loop or "threads" in head["left"].get("reset", ()):
                self._last = head, body
                self._loop.stop()
            else:
                small.append(self._with_names(head, body))
        if small:
            try:
                self._socket.send_bytes(b"".join([packed_result(*each) for each in small]))
            except WorkerGone:
                self._leave_loop()

    def _with_names(self, head: Head, body: bytes) -> tuple[Head, bytes]:
        """Tell with what was left which tasks the runner had."""
        if head["left"]:
            head["left"]["tasks"] = self._had
        self._had = []
        return head, body

    def _end_all(self) -> None:
        """SIGTERM: all tasks are to end."""
        for ctx, task in list(self._tasks.values()):
            ctx.cancelled.set()
            self._loop.call_soon_threadsafe(task.cancel)

    def _database(self) -> str:
        """The URL of the database, for `Client()`: whichever task asks, it is the same."""
        ctx = CURRENT.get() or next(ctx for ctx, _ in self._tasks.values())
        return ctx.database()

    # whose step it is

    def _mark_steps(self) -> None:
        """Let the loop write down before each step whose it is, and end copies of the process."""
        memory, pid, steps = self._runner.memory, os.getpid(), count(1)
        assert memory is not None
        call_soon = self._loop.call_soon

        def step(callback: Callable[..., Any], *args: Any) -> None:
            ctx = CURRENT.get()
            if ctx is None:
                callback(*args)
                return
            write(memory, 0, ctx.token, next(steps))
            try:
                callback(*args)
            finally:
                if os.getpid() != pid:  # a copy that a handler made must not execute other tasks
                    os._exit(0)
                write(memory, 0, NOBODY, next(steps))

        def call_marked(
            callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
        ) -> asyncio.Handle:
            return call_soon(step, callback, *args, context=context)

        self._loop.call_soon = call_marked  # type: ignore[method-assign,assignment]
