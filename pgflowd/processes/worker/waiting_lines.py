"""
Writes what handlers print and log to the log, no faster than a worker can besides its work.

A line becomes a record of some hundred bytes, which costs 20 to 40 µs of the loop that also renews
leases. So lines beyond the pace wait for their turn, a few at a time. While too many wait,
further ones are not read as lines, but counted (`room`).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Any

from pgflowd.core.line_budget import LinePace
from pgflowd.host.logs import Log

AT_ONCE = 1000
PER_S = 2000  # a twentieth of a core
TURN_S = 0.025  # between two turns of lines that wait
MAX_WAITING = 10_000  # of all tasks: as many as one may log


class WaitingLines:
    """The lines of a worker's tasks on their way to its log."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._pace = LinePace(AT_ONCE, PER_S)
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
