"""
What the tasks of a runner print and log, on its way to the worker's log.

Lines come by two pipes, records of `logging` by the runner's socket, and so do the lines of tasks
that share a runner, since a pipe does not tell whose a line is. Up to 1 MiB of each task is logged;
the rest is counted: neither side waits for the log. The last lines of each task are kept for its
report (`core.kept_output`), also beyond what is logged.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pgflowd.core.kept_output import STREAMS, Hide, KeptOutput
from pgflowd.core.line_budget import LineBudget
from pgflowd.core.settings.sections import WorkerSettings
from pgflowd.core.traces import span_of
from pgflowd.core.worker.run_log import naming
from pgflowd.core.worker.task import Task
from pgflowd.processes.worker.runner_output import PAUSE_S, Output

KEPT_BYTES = 65_536  # of each task, its last lines: what people read of a failure
NOTE_EXTRA = 100  # bytes that a record costs besides its text


class LogOfRunners(NamedTuple):
    """Where the output of all runners goes."""

    write: Callable[..., None]  # (level, event, **fields)
    room: Callable[[], int]  # how many lines it takes now
    hide: Hide


class RunnerRecords:
    """The pipes of a runner, its records, and the tasks that they belong to."""

    def __init__(self, log: LogOfRunners, settings: WorkerSettings) -> None:
        self._log, self._hide, self._room = log.write, log.hide, log.room
        self._mode = settings.handler_output
        self._keeps = KEPT_BYTES if settings.keep_output != "off" else 0
        self._kept: dict[int, KeptOutput] = {}  # by token, of tasks that have printed something
        self._begun: dict[int, float] = {}  # when, by token
        self._tasks: dict[int, Task] = {}  # by token
        self._is_shared = False  # so only a token tells whose a record is
        self._budgets: dict[int, LineBudget] = {}  # of tasks that share the runner, by token
        self._budget = LineBudget(log.room)  # of the pipes
        self._pipes = select.poll()
        self._out = self._err = Output(None, self._budget)

    def open(self) -> list[int]:
        """Return the runner's ends: stdout, stderr."""
        if self._mode == "inherit":
            return [os.dup(1), os.dup(2)]
        out, theirs = os.pipe2(os.O_CLOEXEC)
        self._out = Output(out, self._budget, self._log_line("stdout"), self._keeps)
        try:
            err, also_theirs = os.pipe2(os.O_CLOEXEC)
        except OSError:
            os.close(theirs)
            raise
        self._err = Output(err, self._budget, self._log_line("stderr"), self._keeps)
        return [theirs, also_theirs]

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """The runner is forked: read its pipes."""
        for output in (self._out, self._err):
            if output.number >= 0:
                loop.add_reader(output.number, self._on_output, loop, output)
                self._pipes.register(output.number, select.POLLIN)

    def begin_task(self, task: Task, *, is_shared: bool) -> None:
        if not self._tasks:
            self._out.begin()
            self._err.begin()
        self._tasks[task.token] = task
        self._begun[task.token] = time.monotonic()
        self._is_shared = is_shared
        if is_shared:
            self._budgets[task.token] = LineBudget(self._room)

    def end_task(self, task: Task, head: dict[str, Any]) -> KeptOutput | None:
        """Read what is left of a task, whose `done` has this head; return what is kept of it."""
        unseen = self._finish()
        budget = self._budgets.pop(task.token, self._budget)
        if self._is_shared:  # the pipes are of nobody
            unseen = 0
        told = head["unseen"] if isinstance(head.get("unseen"), int) else 0
        self._log_unseen(task, unseen + budget.unseen + told)
        self._tasks.pop(task.token, None)
        self._begun.pop(task.token, None)
        if self._err.keeps_stack:  # its runner was asked to end, and perhaps that counts
            return self._kept.get(task.token)
        return self._kept.pop(task.token, None)

    def end(self) -> None:
        """The runner has ended: read the rest."""
        self._log_unseen(self._task_of(), self._finish() + self._budget.unseen)

    @property
    def kept(self) -> Mapping[int, KeptOutput]:
        """What is kept of the tasks that ended with the runner, by their tokens."""
        return self._kept

    def _finish(self) -> int:
        """Read the pipes to the end, so that each line belongs to its task; return how many bytes
        were too many."""
        has_more = bool(self._pipes.poll(0))  # one call for both; most tasks print nothing
        for output in (self._out, self._err):
            output.finish(has_more)
        if (self._out.late or self._err.late) and (task := self._task_of()):
            self._keep_late(task)
        return self._out.unseen + self._err.unseen

    def _log_unseen(self, task: Task | None, unseen: int) -> None:
        if task and unseen > 0:
            text = f"{unseen} bytes of output more, not logged"
            self._log("warning", "task.output", text=text, **naming(task))

    def _keep_late(self, task: Task) -> None:
        """Keep the last bytes of what was too much for the log."""
        of_streams = (("stdout", self._out), ("stderr", self._err))
        for stream, output in sorted(of_streams, key=lambda each: each[1].late_at):
            if output.late:
                since_s = output.late_at - self._begun[task.token]
                self._output_of(task).add_tail(since_s, stream, output.late)
                output.late = b""

    def _keep(self, task: Task | None, source: str, text: str) -> None:
        if self._keeps and task is not None:
            since_s = time.monotonic() - self._begun[task.token]
            self._output_of(task).add(since_s, source, text)

    def _output_of(self, task: Task) -> KeptOutput:
        if task.token not in self._kept:
            self._kept[task.token] = KeptOutput(self._keeps, self._hide)
        return self._kept[task.token]

    def note(self, head: dict[str, Any]) -> None:
        """Log what a handler logged, or between tasks a thread, as long as the megabyte lasts."""
        text, task = str(head.get("text")), self._task_of(head.get("token"))
        stream = head["stream"] if head.get("stream") in STREAMS else None
        self._keep(task, stream or head["level"], text)
        if head.get("late"):  # it was too much for the log, and is counted
            return
        budget = self._budgets.get(task.token, self._budget) if task else self._budget
        if not budget.take(len(text), NOTE_EXTRA):
            return
        of_task = naming(task) if task else {}
        if stream:
            self._log("info", "task.output", stream=stream, text=text, **of_task)
            return
        fields = {"logger": str(head.get("logger"))[:200], "text": text, **of_task}
        given = (head.get("trace_id"), head.get("span_id"))
        if "trace_id" in of_task and (span := span_of(*given)):
            fields |= span._asdict()
        self._log(head["level"], "task.log", **fields)

    def keep_stack(self) -> None:
        """The runner gets SIGTERM, at which it writes its stack."""
        self._err.keeps_stack = True

    @property
    def stack(self) -> str:
        return self._err.stack()

    def close(self, loop: asyncio.AbstractEventLoop) -> None:
        for output in (self._out, self._err):
            if output.number >= 0:
                self._close_output(loop, output)

    def _task_of(self, token: Any = None) -> Task | None:
        """The task that a record belongs to: that of the token, or the only one there can be."""
        if self._is_shared:
            return self._tasks.get(token) if isinstance(token, int) else None
        return next(iter(self._tasks.values()), None)

    def _on_output(self, loop: asyncio.AbstractEventLoop, output: Output) -> None:
        if not output.read():
            self._close_output(loop, output)
        elif output.is_flood:
            loop.remove_reader(output.number)
            loop.call_later(PAUSE_S, self._go_on, loop, output)

    def _go_on(self, loop: asyncio.AbstractEventLoop, output: Output) -> None:
        if output.number >= 0:
            loop.add_reader(output.number, self._on_output, loop, output)

    def _close_output(self, loop: asyncio.AbstractEventLoop, output: Output) -> None:
        loop.remove_reader(output.number)
        with contextlib.suppress(KeyError):  # it never began
            self._pipes.unregister(output.number)
        output.close()

    def _log_line(self, stream: str) -> Callable[[str], None] | None:
        is_logged = self._mode == "capture"
        if not (is_logged or self._keeps):
            return None

        def log(text: str) -> None:
            task = self._task_of()
            self._keep(task, stream, text)
            if is_logged:
                fields = naming(task) if task else {}
                self._log("info", "task.output", stream=stream, text=text, **fields)

        return log
