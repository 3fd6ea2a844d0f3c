"""
Following: whose handlers' output somebody wants to see while they run, and how it is told.

Whoever follows a run says so on channel `pgflowd`, every `RENEW_S` again; a worker remembers it
for `LAST_S`, so that nothing is sent when nobody looks. What it sends are JSON objects on the
channel of the run, `event_type` `task:output`, beside the events of runs and steps. Runs and
lines are bounded: too many lines are dropped, and their number is told. Pure: the time is an
argument.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from typing import Any
from uuid import UUID

OUTPUT = "task:output"
RENEW_S = 20.0
LAST_S = 60.0
MOST_RUNS = 64  # that a worker remembers
MOST_KEPT = 1000  # lines that wait to be sent
MOST_SENT = 100  # lines at once
LARGEST = 7900  # bytes of a payload; PostgreSQL takes less than 8000
_ASK = "follow "


def asking(run_id: UUID) -> str:
    """What to say on channel `pgflowd`, where else names of queues are said."""
    return f"{_ASK}{run_id}"


def asked_for(payload: str) -> str | None:
    """The run that somebody wants to follow, if that is what he says."""
    if not payload.startswith(_ASK):
        return None
    try:
        return str(UUID(payload.removeprefix(_ASK)))
    except ValueError:
        return None


class Followed:
    """The runs that are followed, and lines that wait to be sent: run and payload."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}  # the next to be forgotten is the first
        self._kept: deque[tuple[str, str]] = deque()
        self._dropped: dict[str, tuple[int, Any]] = {}  # how many, and when the last
        self._number = 0

    def __bool__(self) -> bool:
        return bool(self._until)

    @property
    def is_waiting(self) -> bool:
        """Whether anything is to be sent."""
        return bool(self._kept or self._dropped)

    def follow(self, run_id: str, now: float) -> None:
        """Somebody wants to see this run. Of too many, the longest unasked for is forgotten."""
        self._until.pop(run_id, None)
        while len(self._until) >= MOST_RUNS:
            del self._until[next(iter(self._until))]
        self._until[run_id] = now + LAST_S

    def wants(self, run_id: str, now: float) -> bool:
        """Whether anybody follows this run. Who has not asked for long is forgotten."""
        while self._until and now >= next(iter(self._until.values())):
            del self._until[next(iter(self._until))]
        return run_id in self._until

    def keep(self, run_id: str, told: Mapping[str, Any]) -> None:
        """Keep a line to be sent, if there is room."""
        if len(self._kept) >= MOST_KEPT:
            self.drop(run_id, told)
        else:
            self._kept.append((run_id, self._payload(run_id, told)))

    def drop(self, run_id: str, told: Mapping[str, Any]) -> None:
        """A line that will not be sent."""
        if run_id in self._dropped or len(self._dropped) < MOST_RUNS:
            count, _ = self._dropped.get(run_id, (0, None))
            self._dropped[run_id] = count + 1, told.get("time")

    def take(self) -> list[tuple[str, str]]:
        """What to send now: some lines, or at last how many were dropped."""
        taken = [self._kept.popleft() for _ in range(min(len(self._kept), MOST_SENT))]
        if not self._kept:
            for run_id, (count, time) in self._dropped.items():
                text = f"{count} lines more, which came too fast to be shown"
                told = {"dropped": count, "level": "warning", "text": text, "time": time}
                taken.append((run_id, self._payload(run_id, told)))
            self._dropped = {}
        return taken

    def forget(self) -> None:
        """Send nothing, until somebody asks again."""
        self._until, self._dropped = {}, {}
        self._kept.clear()

    def _payload(self, run_id: str, told: Mapping[str, Any]) -> str:
        """A line as JSON; numbered, since PostgreSQL sends equal payloads once."""
        self._number += 1
        event = {"event_type": OUTPUT, "run_id": run_id, **told, "number": self._number}
        text = str(event["text"])
        while len(payload := json.dumps(event, separators=(",", ":"), default=str)) > LARGEST:
            text = text[: len(text) // 2]
            event["text"] = f"{text}…"
        return payload


def line_in(payload: str) -> dict[str, Any] | None:
    """The line of output in a payload from the channel of a run, if it is one."""
    if f'"{OUTPUT}"' not in payload:
        return None
    try:
        told = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    is_ours = isinstance(told, dict) and told.get("event_type") == OUTPUT
    return told if is_ours and isinstance(told.get("text"), str) else None
