"""
The last lines that the handlers of one run have printed.

Lines are not stored, so a tab that is slow or away for a moment finds them here. What it missed is
counted. Numbers begin at the time in milliseconds: those of a run that nobody viewed for a while
continue with larger ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from pgflowd.core.documents.runs import RunWithStates, TimelineEntry
from pgflowd.core.output_stream import output_line
from pgflowd.core.timeline import output_entry, undo_output

MAX_LINES = 1000
KEPT_S = 60.0


class Line(NamedTuple):
    """A line; the next one has the next number."""

    number: int
    at: float
    entry: TimelineEntry


class OutputLines:
    """The lines of a run, and of the run that undoes it."""

    def __init__(self, began_ms: int) -> None:
        self.run: RunWithStates | None = None
        self.undo: RunWithStates | None = None
        self.last = self._before = began_ms  # the numbers of the newest line, and before the first
        self._kept: deque[Line] = deque(maxlen=MAX_LINES)

    def hear(self, payload: str, is_undo: bool, now: float) -> bool:
        """Keep the line of a notification, if it is one."""
        line = output_line(payload)
        if line is None or self.run is None:
            return False
        if is_undo:
            entry = undo_output(self.run, self.undo, line) if self.undo else None
        else:
            entry = output_entry(self.run, line)
        if entry is None:
            return False
        while self._kept and self._kept[0].at < now - KEPT_S:
            self._kept.popleft()
        self._kept.append(Line(self.last + 1, now, entry))
        self.last += 1
        return True

    def after(self, number: int) -> tuple[int | None, Sequence[Line]]:
        """The lines after this number, and how many between are not kept; None: it is unknown."""
        found = [line for line in self._kept.copy() if line.number > number]
        if not self._before <= number <= self.last:
            return None, found
        first = found[0].number if found else self.last + 1
        return first - number - 1, found
