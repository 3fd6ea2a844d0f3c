"""
Keeps which runs are followed, and the lines of their handlers' output that wait to be sent.

A follower of a run writes a row (`pgflowd.follow`). A worker reads these rows with its heartbeats,
and hears of a new one by a notification on channel `pgflowd`. It remembers each for
`REQUEST_LASTS_S`, so it sends nothing while no one follows. A line is a JSON object on the output
channel of the run, `event_type` `task:output`, like the events of runs and steps. Runs and lines
are bounded: lines that find no room are dropped and counted. Pure: the time is an argument.
"""

from __future__ import annotations

import json
import re
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple
from uuid import UUID

from pgflowd.core.json import COMPACT, Encoder

OUTPUT = "task:output"
REQUEST_LASTS_S = 60.0  # as long as a row
MAX_RUNS = 64  # that a worker remembers
MAX_WAITING_LINES = 1000  # of all runs; further ones are dropped
MAX_LINES_AT_ONCE = 100  # in one statement
MAX_PAYLOAD_BYTES = 7900  # PostgreSQL takes less than 8000
_FOLLOW = "follow "
_dumps = Encoder(separators=COMPACT, default=str)


def requested_run(payload: str) -> str | None:
    """The run whose output a payload of channel `pgflowd` requests; others name queues."""
    if not payload.startswith(_FOLLOW):
        return None
    try:
        return str(UUID(payload.removeprefix(_FOLLOW)))
    except ValueError:
        return None


class FollowedRuns:
    """The runs that are followed, and the lines that wait to be sent: run and payload."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}  # the next to be forgotten comes first
        self._kept: deque[tuple[str, str]] = deque()
        self._dropped: dict[str, tuple[int, Any]] = {}  # their number, and the time of the last
        self._number = 0

    def __bool__(self) -> bool:
        return bool(self._until)

    @property
    def is_waiting(self) -> bool:
        """Whether there is anything to send."""
        return bool(self._kept or self._dropped)

    def follow(self, run_id: str, now: float) -> None:
        """Remember a request. Of too many runs, the one with the oldest request is forgotten."""
        self._until.pop(run_id, None)
        while len(self._until) >= MAX_RUNS:
            del self._until[next(iter(self._until))]
        self._until[run_id] = now + REQUEST_LASTS_S

    def wants(self, run_id: str, now: float) -> bool:
        """Whether this run is followed. Requests that were not renewed are forgotten."""
        while self._until and now >= next(iter(self._until.values())):
            del self._until[next(iter(self._until))]
        return run_id in self._until

    @property
    def is_full(self) -> bool:
        return len(self._kept) >= MAX_WAITING_LINES

    def keep(self, run_id: str, line: Mapping[str, Any]) -> None:
        """Keep a line to be sent, if there is room."""
        if self.is_full:
            self.drop(run_id, line)
        else:
            self._kept.append((run_id, self._payload(run_id, line)))

    def drop(self, run_id: str, line: Mapping[str, Any]) -> None:
        """A line that will not be sent."""
        if run_id in self._dropped or len(self._dropped) < MAX_RUNS:
            count, _ = self._dropped.get(run_id, (0, None))
            self._dropped[run_id] = count + 1, line.get("time")

    def take(self) -> list[tuple[str, str]]:
        """Take some lines to send; after the last one comes the number of dropped ones."""
        taken = [self._kept.popleft() for _ in range(min(len(self._kept), MAX_LINES_AT_ONCE))]
        if not self._kept:
            for run_id, (count, time) in self._dropped.items():
                text = f"{count} more lines came too fast to be shown"
                line = {"dropped": count, "level": "warning", "text": text, "time": time}
                taken.append((run_id, self._payload(run_id, line)))
            self._dropped = {}
        return taken

    def forget(self) -> None:
        """Send nothing until the next request."""
        self._until, self._dropped = {}, {}
        self._kept.clear()

    def _payload(self, run_id: str, line: Mapping[str, Any]) -> str:
        """A line as JSON; numbered, since PostgreSQL sends equal payloads once."""
        self._number += 1
        event = {"event_type": OUTPUT, "run_id": run_id, **line, "number": self._number}
        text = str(event["text"])
        while len(payload := _dumps(event)) > MAX_PAYLOAD_BYTES:
            text = text[: len(text) // 2]
            event["text"] = f"{text}…"
        return payload


def output_line(payload: str) -> dict[str, Any] | None:
    """The line of output in a payload from the output channel of a run, if it is one."""
    if f'"{OUTPUT}"' not in payload:
        return None
    try:
        line = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    is_output = isinstance(line, dict) and line.get("event_type") == OUTPUT
    return line if is_output and isinstance(line.get("text"), str) else None


# What is kept of the output of an attempt: its last lines, within a number of bytes.
#
# A worker has one `KeptOutput` for each running task that has printed or logged something. As text
# each line is seconds since the attempt began, a source, and what was printed: `12.3 stdout page
# 7`. The source is `stdout`, `stderr`, the level of a log record, or `cut` in the first line if
# earlier ones are missing. Secrets are hidden as in the log, line by line, and only where the text
# is wanted.
CUT = "cut"
CUT_TEXT = "earlier lines are not kept"
STREAMS = ("stdout", "stderr")
MAX_LINE_CHARS = 8000  # as in the log
LINE_EXTRA = 14  # about what stands before the text of a line
MAX_TAIL_BYTES = 64 * 1024  # of what a task prints beyond what is logged
_LINE = re.compile(r"(\d{1,12}(?:\.\d{1,12})?) (\w{1,40}) ?(.*)", re.S)

Hide = Callable[[str], str]


class KeptOutput:
    """The last lines of an attempt."""

    def __init__(self, size: int, hide: Hide) -> None:
        self._size, self._hide = size, hide
        self._lines: deque[tuple[float, str, str]] = deque()
        self._room = size
        self._is_cut = False

    def add(self, since_s: float, source: str, text: str) -> None:
        """Add a line, or a record of several, and forget the first ones if there is no room."""
        if len(text) > min(MAX_LINE_CHARS, self._size):
            # to the next word, or half of a secret would not be known for one
            text = text[-min(MAX_LINE_CHARS, self._size) :].partition(" ")[2]
            self._is_cut = True
        self._lines.append((since_s, source, text))
        self._room -= len(text) + LINE_EXTRA
        while self._room < 0 and len(self._lines) > 1:
            self._room += len(self._lines.popleft()[2]) + LINE_EXTRA
            self._is_cut = True

    def add_tail(self, since_s: float, source: str, tail: bytes) -> None:
        """Add the last bytes of a stream, which came after all its lines so far."""
        _, *lines = tail.decode("utf-8", "backslashreplace").removesuffix("\n").split("\n")
        self._is_cut = True
        for line in lines:
            self.add(since_s, source, line)

    @property
    def size(self) -> int:
        return self._size - self._room

    def text(self) -> tuple[str, int]:
        """The lines as they are stored, and how many there are."""
        found: list[str] = []
        for since_s, source, text in sorted(self._lines, key=lambda line: line[0]):
            shown = self._hide(text).replace("\0", "\N{REPLACEMENT CHARACTER}")
            found += [f"{since_s:.3f} {source} {line}\n" for line in shown.split("\n")]
        room, first = self._size, len(found)
        while first and (size := len(found[first - 1].encode("utf-8", "replace"))) <= room:
            room, first = room - size, first - 1
        kept = found[first:]
        if self._is_cut or first:
            return f"0 {CUT} {CUT_TEXT}\n{''.join(kept)}", len(kept)
        return "".join(kept), len(kept)


class KeptLine(NamedTuple):
    """A line that a handler printed or logged."""

    since_s: Annotated[float, "since the attempt began"]
    stream: Annotated[str, "`stdout`, `stderr`, or `log`"]
    level: Annotated[str, "of a line that was logged"]
    text: Annotated[str, "the line"]


def read(printed: str) -> tuple[Sequence[KeptLine], bool]:
    """The lines of a text, and whether earlier ones are missing; an odd one stays whole."""
    lines, is_cut = [], False
    for line in printed.removesuffix("\n").split("\n"):
        found = _LINE.fullmatch(line)
        since_s, source, text = found.groups() if found else ("0", "info", line)
        if source == CUT:
            is_cut = True
        elif source in STREAMS:
            lines.append(KeptLine(float(since_s), source, "info", text))
        else:
            lines.append(KeptLine(float(since_s), "log", source, text))
    return lines, is_cut


# How much of what tasks print and log is logged, and how fast.
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


class Pace:
    """Lets so many lines or values pass at once, and so many a second. Pure: the time is given."""

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
