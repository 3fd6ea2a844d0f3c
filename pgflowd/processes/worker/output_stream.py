"""
The worker's audience: people who follow runs, and hear what the runs' handlers print and log.

Everything the runners' side writes passes here on its way to the log. While nobody follows
anything that costs one look at an empty dictionary. Lines go to the followers over the beats
line, a few at once and when that is free; what finds no room is dropped and counted, so neither
handlers nor reports ever wait. Secrets are hidden as in the log.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from pgflowd.core.output_stream import FollowedRuns
from pgflowd.core.worker import events
from pgflowd.host.logs import Log

COMPANY_S = 0.02  # a line waits for others

_HEARD = {"task.output", "task.log"}


class OutputStream:
    """Who follows, and what waits to be told to them."""

    def __init__(self, log: Log, tell: Callable[[Any], None]) -> None:
        self._log, self._tell = log, tell
        self._followed = FollowedRuns()
        self._timer: asyncio.TimerHandle | None = None

    def follow(self, run_id: str) -> None:
        self._followed.follow(run_id, time.monotonic())

    def write(self, level: str, event: str, **fields: Any) -> None:
        """Write a record to the log, and let followers of its run hear it."""
        self._log.write(level, event, **fields)
        if self._followed and event in _HEARD:
            self._overhear(level, event, fields)

    def heard(self, event: Any) -> None:
        """An event of the runners; what a task has said goes out before its outcome does."""
        if self._timer is not None and isinstance(event, events.Done | events.RunnerEnded):
            self._say_so()
        self._tell(event)

    def take(self) -> list[tuple[str, str]]:
        """What to send now, runs and payloads."""
        return self._followed.take()

    def was_told(self) -> None:
        """Go on with what has come meanwhile."""
        if self._followed.is_waiting:
            self._say_so()

    def was_refused(self) -> None:
        """The server does not let us; who follows will ask again."""
        self._followed.forget()

    def _overhear(self, level: str, event: str, fields: dict[str, Any]) -> None:
        run_id = str(fields.get("run"))
        if not self._followed.wants(run_id, time.monotonic()):
            return
        if level == "debug" and not self._log.is_wanted(level):
            return
        record = self._log.record(level, event, **fields)
        said = record.fields
        self._followed.keep(
            run_id,
            {
                "step_slug": said.get("step"),
                "task_index": int(str(fields["task"]).rpartition("#")[2]),
                "attempt": said.get("attempt"),
                "stream": said.get("stream") if event == "task.output" else "log",
                "level": level,
                "text": str(said.get("text", "")),
                "time": record.time,
            },
        )
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(COMPANY_S, self._say_so)

    def _say_so(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._tell(events.OutputWaiting())
