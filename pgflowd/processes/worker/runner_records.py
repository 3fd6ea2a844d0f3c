"""
What the tasks of a runner print and log, on its way to the worker's log.

Lines come by two pipes, records of `logging` by the runner's socket, and so do the lines of tasks
that share a runner, since a pipe does not tell whose a line is. Up to 1 MiB of each task is logged;
the rest is counted and moved to /dev/null inside the kernel: neither side waits for the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
from collections.abc import Callable
from typing import Any

from pgflowd.core.line_budget import LineBudget
from pgflowd.core.worker.run_log import naming
from pgflowd.core.worker.task import Task
from pgflowd.processes.worker.runner_output import Output

NOTE_EXTRA = 100  # bytes that a record costs besides its text

Log = Callable[..., None]  # (level, event, **fields)


class RunnerRecords:
    """The pipes of a runner, its records, and the tasks that they belong to."""

    def __init__(self, log: Log, handler_output: str) -> None:
        self._log, self._mode = log, handler_output
        self._tasks: dict[int, Task] = {}  # by token
        self._is_shared = False  # so only a token tells whose a record is
        self._budgets: dict[int, LineBudget] = {}  # of tasks that share the runner, by token
        self._budget = LineBudget()  # of the pipes
        self._pipes = select.poll()
        self._out = self._err = Output(None, self._budget)

    def open(self) -> list[int]:
        """Return the runner's ends: stdout, stderr."""
        if self._mode == "inherit":
            return [os.dup(1), os.dup(2)]
        out, theirs = os.pipe2(os.O_CLOEXEC)
        self._out = Output(out, self._budget, self._log_line("stdout"))
        try:
            err, also_theirs = os.pipe2(os.O_CLOEXEC)
        except OSError:
            os.close(theirs)
            raise
        self._err = Output(err, self._budget, self._log_line("stderr"))
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
        self._is_shared = is_shared
        if is_shared:
            self._budgets[task.token] = LineBudget()

    def end_task(self, task: Task, head: dict[str, Any]) -> None:
        """Read what is left of a task, whose `done` has this head."""
        unseen = self._finish()
        if self._is_shared:
            unseen = head["unseen"] if isinstance(head.get("unseen"), int) else 0
        self._log_unseen(task, unseen)
        self._budgets.pop(task.token, None)
        self._tasks.pop(task.token, None)

    def end(self) -> None:
        """The runner has ended: read the rest."""
        self._log_unseen(self._task_of(), self._finish())

    def _finish(self) -> int:
        """Read the pipes to the end, so that each line belongs to its task; return how many bytes
        were too many."""
        has_more = bool(self._pipes.poll(0))  # one call for both; most tasks print nothing
        for output in (self._out, self._err):
            output.finish(has_more)
        return self._out.unseen + self._err.unseen

    def _log_unseen(self, task: Task | None, unseen: int) -> None:
        if task and unseen > 0:
            text = f"{unseen} bytes of output more, not logged"
            self._log("warning", "task.output", text=text, **naming(task))

    def note(self, head: dict[str, Any]) -> None:
        """Log what a handler logged, or between tasks a thread, as long as the megabyte lasts."""
        text, task = str(head.get("text")), self._task_of(head.get("token"))
        budget = self._budgets.get(task.token, self._budget) if task else self._budget
        if budget.room <= 0:
            self._err.unseen += len(text)
            return
        budget.room -= len(text) + NOTE_EXTRA
        of_task = naming(task) if task else {}
        if head.get("stream") in ("stdout", "stderr"):
            self._log("info", "task.output", stream=head["stream"], text=text, **of_task)
            return
        fields = {"logger": str(head.get("logger"))[:200], "text": text, **of_task}
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

    def _close_output(self, loop: asyncio.AbstractEventLoop, output: Output) -> None:
        loop.remove_reader(output.number)
        with contextlib.suppress(KeyError):  # it never began
            self._pipes.unregister(output.number)
        output.close()

    def _log_line(self, stream: str) -> Callable[[str], None] | None:
        if self._mode != "capture":
            return None

        def log(text: str) -> None:
            task = self._task_of()
            fields = naming(task) if task else {}
            self._log("info", "task.output", stream=stream, text=text, **fields)

        return log
