"""
What the handlers of followed runs print and log, on its way to the followers.

All that runners write passes here on its way to the log. While no run is followed that costs one
test of an empty dictionary. Lines go to the followers as side calls (`core.worker.connections`), a
few at once; lines that find no room are dropped and counted, so neither handlers nor reports ever
wait. Secrets are hidden as in the log.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from pgflowd.core.logrecord import LogRecord
from pgflowd.core.output_stream import FollowedRuns, Pace
from pgflowd.core.worker import events
from pgflowd.host.logs import Log

# Writes what handlers print and log to the log, no faster than a worker can besides its work.
#
# A line becomes a record of some hundred bytes, which costs 20 to 40 µs of the loop that also
# renews leases. So lines beyond the pace wait for their turn, a few at a time. While too many wait,
# further ones are not read as lines, but counted (`room`).
AT_ONCE = 1000
PER_S = 2000  # a twentieth of a core
TURN_S = 0.025  # between two turns of lines that wait
MAX_WAITING = 10_000  # of all tasks: as many as one may log


class WaitingLines:
    """The lines of a worker's tasks on their way to its log."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._pace = Pace(AT_ONCE, PER_S)
        self._waiting: deque[tuple[str, str, dict[str, Any]]] = deque()
        self._is_due = False

    def room(self) -> int:
        """How many more may wait."""
        return MAX_WAITING - len(self._waiting)

    def write(self, level: str, event: str, fields: dict[str, Any]) -> None:
        """Write a line now, or soon."""
        if not self._log.is_wanted(level):
            return
        if not self._waiting and self._pace.may_pass(time.monotonic()):
            self._log.write(level, event, **fields)
        else:
            self._waiting.append((level, event, fields))
            self._plan()

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

    def write_all(self) -> None:
        """The worker ends: write what waits."""
        for level, event, fields in self._waiting:
            self._log.write(level, event, **fields)
        self._waiting.clear()


BATCHING_S = 0.02  # a line waits for others

_OUTPUT_EVENTS = {"task.output", "task.log"}


class OutputStream:
    """The followed runs, and the lines that wait to be published."""

    def __init__(self, log: Log, emit: Callable[[events.WorkerEvent], None]) -> None:
        self._log, self._emit = log, emit
        self._followed = FollowedRuns()
        self._lines = WaitingLines(log)
        self._timer: asyncio.TimerHandle | None = None

    def follow(self, run_id: str) -> None:
        self._followed.follow(run_id, time.monotonic())

    def write(self, level: str, event: str, **fields: Any) -> None:
        """Write a record to the log, and keep it for followers of its run."""
        if event not in _OUTPUT_EVENTS:
            self._log.write(level, event, **fields)
            return
        self._lines.write(level, event, fields)
        if self._followed:
            self._keep(level, event, fields)

    def room(self) -> int:
        """How many lines the log takes now."""
        return self._lines.room()

    def end(self) -> None:
        """The worker ends: write what waits."""
        self._lines.write_all()

    def pass_on(self, event: events.WorkerEvent) -> None:
        """Pass on an event of a runner; a task's output is published before its report."""
        if self._timer is not None and isinstance(event, events.Done | events.RunnerEnded):
            self._request_publishing()
        self._emit(event)

    def take(self) -> list[tuple[str, str]]:
        """What to send now, runs and payloads."""
        return self._followed.take()

    def on_published(self) -> None:
        """Go on with what has come meanwhile."""
        if self._followed.is_waiting:
            self._request_publishing()

    def on_refused(self) -> None:
        """The server refuses it; followers will ask again."""
        self._followed.forget()

    def _keep(self, level: str, event: str, fields: dict[str, Any]) -> None:
        run_id = str(fields.get("run"))
        if not self._followed.wants(run_id, time.monotonic()):
            return
        if level == "debug" and not self._log.is_wanted(level):
            return
        if self._followed.is_full:
            self._followed.drop(run_id, {"time": LogRecord(event, level, time.time()).time})
            return
        record = self._log.record(level, event, **fields)
        kept = record.fields
        self._followed.keep(
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
            self._timer = loop.call_later(BATCHING_S, self._request_publishing)

    def _request_publishing(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._emit(events.OutputWaiting())
