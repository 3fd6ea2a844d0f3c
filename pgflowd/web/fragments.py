"""
The fragments of one document, each with the number of its last change.

A tab has seen all changes up to a number, and asks for those after it. It gets the newest version
of each fragment, so one that is slow skips versions and never sees an old one after a new one. The
watcher changes them in its thread, while tabs read in theirs: a change replaces all at once.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from pgflowd.core.documents.runs import RunWithStates, TimelineEntry
from pgflowd.core.output_stream import output_line
from pgflowd.core.timeline import output_entry, undo_output

# Server-sent events, as they go over the line.
#
# An event has a kind, lines of data and perhaps an id; a browser sends the id of the last one when
# it connects again.
_LINE_END = re.compile("\r\n|\r|\n")  # what the format takes for one; str.splitlines knows others


def event(kind: str, data: str, id: str | None = None) -> bytes:
    """An event; one without an id leaves the last id as it is."""
    lines = [f"event: {kind}"] if kind else []
    if id is not None:
        lines.append(f"id: {id}")
    lines += [f"data: {line}" for line in _LINE_END.split(data)]
    return "\n".join([*lines, "", ""]).encode()


FRAGMENT, REMOVED, ANNOUNCE = "fragment", "removed", "announce"
# what changes with each reading, such as `4s ago`: browsers do that themselves
_TIMES = re.compile(r"(<(?:time|tspan) [^<>]*data-(?:ago|since|until)[^<>]*>)[^<>]*")
MAX_ANNOUNCED = 10  # that a tab hears of which was away for a moment


class Numbers:
    """The numbers of all changes that a process has seen, and the id that each has in a stream."""

    def __init__(self, start: str) -> None:
        self.start = start  # what no other process has
        self._count = count(1)

    def next(self) -> int:
        return next(self._count)

    def id(self, number: int) -> str:
        return f"{self.start}.{number}"

    def read(self, id: str) -> int:
        """The number of an id; 0, which comes before all, if another process gave it."""
        start, _, number = id.partition(".")
        is_ours = start == self.start and number.isascii() and number.isdigit()
        return int(number) if is_ours and len(number) <= 18 else 0


@dataclass(frozen=True)
class Change:
    """What a tab is told: a fragment, that one is gone, or what to announce."""

    number: int
    kind: str
    id: str
    data: str  # the id of a fragment and its HTML; of one that is gone the id; or what to announce
    event: bytes  # the same as it goes over the line, to all tabs alike


class Fragments:
    """What a page consists of, as it was rendered last."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        self._html: dict[str, str] = {}
        self._told: dict[str, str] = {}  # the same without the words of its times
        self._last: dict[str, Change] = {}  # of each fragment
        self._announced: list[Change] = []
        self._changes: tuple[Change, ...] = ()

    def replace(self, html: Mapping[str, str], announce: str = "") -> bool:
        """Take all fragments of a page that was rendered again; whether anything has changed."""
        changed = [self._change(REMOVED, id, "") for id in self._html if id not in html]
        told = {id: _TIMES.sub(r"\1", text) for id, text in html.items()}
        changed += [
            self._change(FRAGMENT, id, html[id])
            for id, text in told.items() if self._told.get(id) != text
        ]  # fmt: skip
        self._html, self._told = dict(html), told
        self._last.update({change.id: change for change in changed})
        if announce:
            said = self._change(ANNOUNCE, "", announce)
            self._announced = [*self._announced[1 - MAX_ANNOUNCED :], said]
        if changed or announce:
            everything = [*self._last.values(), *self._announced]
            self._changes = tuple(sorted(everything, key=lambda change: change.number))
        return bool(changed or announce)

    def put(self, id: str, html: str) -> bool:
        """Replace one fragment, and leave the others; whether it has changed."""
        return self.replace({**self._html, id: html})

    def after(self, number: int) -> list[Change]:
        """The changes after this number, in their order."""
        found = []
        for change in reversed(self._changes):
            if change.number <= number:
                break
            found.append(change)
        return found[::-1]

    def _change(self, kind: str, id: str, text: str) -> Change:
        number = self._numbers.next()
        data = f"{id}\n{text}" if kind == FRAGMENT else id or text
        return Change(number, kind, id, data, event(kind, data, self._numbers.id(number)))


MAX_LINES = 1000
KEPT_S = 60.0


class Line(NamedTuple):
    """A line; the next one has the next number."""

    number: int
    at: float
    entry: TimelineEntry


class OutputLines:
    """The lines of a run, and of the run that undoes it."""

    def __init__(self, began_ms: int | None = None) -> None:
        """`began_ms`: of Unix time, by default now; another process gives other numbers."""
        began_ms = time.time_ns() // 1_000_000 if began_ms is None else began_ms
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
