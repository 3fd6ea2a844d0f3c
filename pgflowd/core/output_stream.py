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
from collections import deque
from collections.abc import Mapping
from typing import Any
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
