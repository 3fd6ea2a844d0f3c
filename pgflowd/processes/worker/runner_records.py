"""
What the tasks of a runner print and log, on its way to the worker's log.

Lines come by two pipes, records of `logging` by the runner's socket, and so do the lines of tasks
that share a runner, since a pipe does not tell whose a line is. Up to 1 MiB of each task is logged;
the rest is counted: neither side waits for the log. The last lines of each task are kept for its
report (`core.output_stream`), also beyond what is logged.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import select
import sys
import termios
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

from pgflowd.core.logrecord import LogRecord
from pgflowd.core.output_stream import STREAMS, FollowedRuns, Hide, KeptOutput, LineBudget, Pace
from pgflowd.core.settings.sections import WorkerSettings
from pgflowd.core.traces import span_of
from pgflowd.core.worker import events
from pgflowd.core.worker.run_log import naming
from pgflowd.core.worker.task import Task
from pgflowd.host.logs import Log

# One of a runner's pipes, stdout or stderr, as the worker reads it.
#
# Lines go to a function until the task has had its megabyte, or its ten thousand lines, since each
# becomes a record of some hundred bytes. The rest is counted, and read in large pieces, with
# pauses; its last bytes are kept if they are wanted, else it is moved to /dev/null by `splice`,
# without being read. A dying runner writes its stack there.
PIECE = 64 * 1024
WIDE = 16 * PIECE  # what the pipe of a flood holds, so that it is read in few pieces
PAUSE_S = 0.01  # between two of these: 100 MB/s
MAX_PASSES = 64  # that read what has come; a handler may write on and on
TAIL = 32 * 1024

_STACK_BEGINS = re.compile(r"Fatal Python error: |(Current thread|Thread) 0x|Current task \(")
_STACK_GOES_ON = re.compile(r"  File |  \.\.\.|  <|Extension modules: |Stack \(|$")


class Output:
    """The reading end of a pipe; number None: there is none."""

    def __init__(
        self,
        number: int | None,
        budget: LineBudget,
        log: Callable[[str], None] | None = None,
        keeps: int = 0,
    ) -> None:
        self.number = -1 if number is None else number
        self.unseen = 0
        self.late = b""  # the last bytes of what is unseen, as many as it keeps
        self.late_at = 0.0
        self._keeps = keeps
        self.keeps_stack = False
        self._log = log
        self._budget = budget
        self._is_in_stack = False
        self._is_wide = False
        self._line = b""
        self._tail = b""
        if number is not None:
            os.set_blocking(number, False)

    def begin(self) -> None:
        """A new task begins."""
        if self._is_wide:
            self._set_size(PIECE)
        self._budget.refill()
        self.unseen, self._tail, self.late = 0, b"", b""

    @property
    def is_flood(self) -> bool:
        """Whether what comes is too much for the log, and may come in large pieces."""
        if self._budget.is_spent and not self._is_wide:
            self._set_size(WIDE)
        return self._budget.is_spent

    def _set_size(self, size: int) -> None:
        self._is_wide = size == WIDE
        with suppress(OSError):  # all pipes of a user hold only so much; or it holds more now
            fcntl.fcntl(self.number, fcntl.F_SETPIPE_SZ, size)

    def finish(self, has_more: bool) -> None:
        """Read what has come until now, and log the last line."""
        if has_more and self.number >= 0:
            for _ in range(MAX_PASSES):
                if not self.take():
                    break
        if self._line:
            self._log_line(self._line)
            self._line = b""

    def stack(self) -> str:
        """The stack that was written last, or ""."""
        lines = self._tail.decode("utf-8", "replace").split("\n")
        return "\n".join(line for line in lines if self._is_stack_line(line)).strip()

    def close(self) -> None:
        if self.number >= 0:
            os.close(self.number)
            self.number = -1

    def take(self) -> int | None:
        """Take a piece of what came; return how many bytes; 0: none now; None: the end."""
        try:
            if self._budget.is_spent and not self.keeps_stack:
                if not self._keeps:
                    return self._skip(WIDE) or None
                if (excess := _waiting(self.number) - self._keeps) > 0:
                    self._leave_out(b"")
                    self._skip(excess)
                    self.late = b""
            piece = os.read(self.number, PIECE)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            return None
        if not piece:
            return None
        self._tail = piece[-TAIL:] if len(piece) >= TAIL else (self._tail + piece)[-TAIL:]
        self._split(piece)
        return len(piece)

    def _skip(self, most: int) -> int:
        """Leave out the next bytes unread."""
        count = os.splice(self.number, _null(), most, flags=os.SPLICE_F_NONBLOCK)
        self.unseen += count
        return count

    def _split(self, piece: bytes) -> None:
        if self._budget.is_spent:
            self._leave_out(piece)
            return
        self._budget.room -= len(piece)
        *lines, rest = (self._line + piece).split(b"\n", self._budget.lines_now)
        self._budget.lines -= len(lines)
        for line in lines:
            self._log_line(line)
        if self._budget.lines_now <= 0:
            self._leave_out(rest, b"\n")
            rest = b""
        self._line = rest[-PIECE:]

    def _leave_out(self, piece: bytes, before: bytes = b"") -> None:
        """It is not logged. `before`: if a line begins with it, the end of the last one."""
        self.unseen += len(piece)
        if self._line:  # it came before
            self._log_line(self._line)
            self._line = b""
        if self._keeps and piece:
            is_enough = len(piece) >= self._keeps
            late = piece if is_enough else self.late + before + piece
            self.late, self.late_at = late[-self._keeps :], time.monotonic()

    def _log_line(self, line: bytes) -> None:
        text = line.decode("utf-8", "backslashreplace")
        if not self._is_stack_line(text) and self._log is not None:
            self._log(text)

    def _is_stack_line(self, line: str) -> bool:
        goes_on = self._is_in_stack and _STACK_GOES_ON.match(line)
        self._is_in_stack = bool(_STACK_BEGINS.match(line) or goes_on)
        return self._is_in_stack


def _waiting(number: int) -> int:
    """How many bytes a pipe holds."""
    return int.from_bytes(fcntl.ioctl(number, termios.FIONREAD, bytes(4)), sys.byteorder)


@cache
def _null() -> int:
    return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


KEPT_BYTES = 65_536  # of each task, its last lines: what people read of a failure
NOTE_EXTRA = 100  # bytes that a record costs besides its text


class RunnerRecords:
    """The pipes of a runner, its records, and the tasks that they belong to."""

    def __init__(self, stream: OutputStream, settings: WorkerSettings) -> None:
        self._log, self._hide, self._room = stream.write, stream.hide, stream.room
        self._mode = settings.handler_output
        self._keeps = KEPT_BYTES if settings.keep_output != "off" else 0
        self.kept: dict[int, KeptOutput] = {}  # by token, of tasks that have printed something
        self._begun: dict[int, float] = {}  # when, by token
        self._tasks: dict[int, Task] = {}  # by token
        self._is_shared = False  # so only a token tells whose a record is
        self._budgets: dict[int, LineBudget] = {}  # of tasks that share the runner, by token
        self._budget = LineBudget(stream.room)  # of the pipes
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
            return self.kept.get(task.token)
        return self.kept.pop(task.token, None)

    def end(self) -> None:
        """The runner has ended: read the rest."""
        self._log_unseen(self._task_of(), self._finish() + self._budget.unseen)

    def _finish(self) -> int:
        """Read the pipes to the end, so that each line belongs to its task; return how many bytes
        were too many."""
        has_more = bool(self._pipes.poll(0))  # one call for both; most tasks print nothing
        for output in (self._out, self._err):
            output.finish(has_more)
        if (self._out.late or self._err.late) and (task := self._task_of()):
            # keep the last bytes of what was too much for the log
            of_streams = (("stdout", self._out), ("stderr", self._err))
            for stream, output in sorted(of_streams, key=lambda each: each[1].late_at):
                if output.late:
                    since_s = output.late_at - self._begun[task.token]
                    self._output_of(task).add_tail(since_s, stream, output.late)
                    output.late = b""
        return self._out.unseen + self._err.unseen

    def _log_unseen(self, task: Task | None, unseen: int) -> None:
        if task and unseen > 0:
            text = f"{unseen} bytes of output more, not logged"
            self._log("warning", "task.output", text=text, **naming(task))

    def _keep(self, task: Task | None, source: str, text: str) -> None:
        if self._keeps and task is not None:
            since_s = time.monotonic() - self._begun[task.token]
            self._output_of(task).add(since_s, source, text)

    def _output_of(self, task: Task) -> KeptOutput:
        if task.token not in self.kept:
            self.kept[task.token] = KeptOutput(self._keeps, self._hide)
        return self.kept[task.token]

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
        if output.take() is None:
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


# What handlers print and log, on its way to the log, and to the followers of their runs.
#
# A line becomes a record of some hundred bytes, which costs 20 to 40 µs of the loop that also
# renews leases. So lines beyond the pace wait for their turn, a few at a time. While too many wait,
# further ones are not read as lines, but counted (`room`).
#
# While no run is followed that costs one test of an empty dictionary. Lines go to the followers as
# side calls (`core.worker.connections`), a few at once; lines that find no room are dropped and
# counted, so neither handlers nor reports ever wait. Secrets are hidden as in the log.
AT_ONCE = 1000
PER_S = 2000  # a twentieth of a core
TURN_S = 0.025  # between two turns of lines that wait
MAX_WAITING = 10_000  # of all tasks: as many as one may log
BATCHING_S = 0.02  # a line waits for others


class OutputStream:
    """Where the output of all runners goes: the lines that wait for the log or for followers."""

    def __init__(self, log: Log, emit: Callable[[events.WorkerEvent], None]) -> None:
        self._log, self._emit = log, emit
        self.hide: Hide = log.without_secrets
        self.followed = FollowedRuns()
        self._pace = Pace(AT_ONCE, PER_S)
        self._waiting: deque[tuple[str, str, dict[str, Any]]] = deque()
        self._is_due = False
        self._timer: asyncio.TimerHandle | None = None

    def follow(self, run_id: str) -> None:
        self.followed.follow(run_id, time.monotonic())

    def room(self) -> int:
        """How many lines the log takes now."""
        return MAX_WAITING - len(self._waiting)

    def write(self, level: str, event: str, **fields: Any) -> None:
        """Write a record to the log, now or soon, and keep it for followers of its run."""
        if self._log.is_wanted(level):
            if not self._waiting and self._pace.may_pass(time.monotonic()):
                self._log.write(level, event, **fields)
            else:
                self._waiting.append((level, event, fields))
                self._plan()
        if self.followed:
            self._keep(level, event, fields)

    def _plan(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_later(TURN_S, self._write_some)

    def _write_some(self) -> None:
        self._is_due = False
        while self._waiting and self._pace.may_pass(time.monotonic()):
            level, event, fields = self._waiting.popleft()
            self._log.write(level, event, **fields)
        if self._waiting:
            self._plan()

    def end(self) -> None:
        """The worker ends: write what waits."""
        for level, event, fields in self._waiting:
            self._log.write(level, event, **fields)
        self._waiting.clear()

    def pass_on(self, event: events.WorkerEvent) -> None:
        """Pass on an event of a runner; a task's output is published before its report."""
        if self._timer is not None and isinstance(event, events.Done | events.RunnerEnded):
            self.request_publishing()
        self._emit(event)

    def _keep(self, level: str, event: str, fields: dict[str, Any]) -> None:
        run_id = str(fields.get("run"))
        if not self.followed.wants(run_id, time.monotonic()):
            return
        if level == "debug" and not self._log.is_wanted(level):
            return
        if self.followed.is_full:
            self.followed.drop(run_id, {"time": LogRecord(event, level, time.time()).time})
            return
        record = self._log.record(level, event, **fields)
        kept = record.fields
        self.followed.keep(
            run_id,
            {
                "step_slug": kept.get("step"),
                "task_index": int(str(fields["task"]).rpartition("#")[2]),
                "attempt": kept.get("attempt"),
                "stream": kept.get("stream") if event == "task.output" else "log",
                "level": level,
                "text": str(kept.get("text", "")),
                "time": record.time,
            },
        )
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(BATCHING_S, self.request_publishing)

    def request_publishing(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._emit(events.OutputWaiting())
