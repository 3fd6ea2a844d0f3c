"""How much of what tasks print and log is logged, and how fast."""

from __future__ import annotations

import sys
from collections.abc import Callable

MAX_LOGGED_BYTES = 1024 * 1024  # of one task
MAX_LINES = 10_000


class LineBudget:
    """How much of a task may still be logged; all its streams share it. `room` tells how many lines
    the log takes now, of all tasks."""

    def __init__(self, room: Callable[[], int] = lambda: sys.maxsize) -> None:
        self._room = room
        self.refill()

    def refill(self) -> None:
        self.room, self.lines = MAX_LOGGED_BYTES, MAX_LINES
        self.unseen = 0  # bytes that were too much

    @property
    def is_spent(self) -> bool:
        return self.room <= 0 or self.lines_now <= 0

    def take(self, size: int, extra: int = 0) -> bool:
        """Whether a record of this size, and so much more in the log, may still be logged."""
        if self.is_spent:
            self.unseen += size
            return False
        self.room -= size + extra
        self.lines -= 1
        return True

    @property
    def lines_now(self) -> int:
        return min(self.lines, self._room())


class LinePace:
    """Lets so many lines pass at once, and so many a second. Pure: the time is an argument."""

    def __init__(self, at_once: int, per_s: float) -> None:
        self._most, self._per_s = at_once, per_s
        self._room, self._at = float(at_once), 0.0

    def may_pass(self, now: float) -> bool:
        """Whether one more may pass, which then is counted."""
        self._room = min(self._most, self._room + (now - self._at) * self._per_s)
        self._at = now
        if self._room < 1:
            return False
        self._room -= 1
        return True
