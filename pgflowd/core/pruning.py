"""
When the sweeper deletes what is older than the retention, and when a database has grown too much.

It prunes each hour, some runs at a time, from the oldest on. After each part it rests for as long
as that took, so that pruning takes half of one connection's time at most. Where it fails, it tries
again after growing pauses. Pure.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from pgflowd.core.backoff import doubled_s
from pgflowd.core.text import size
from pgflowd.errors import Problem

EVERY_S = 3600.0
MIN_RETRY_S = 60.0
# So much still fits into a small server's memory and into a quick backup, so below it nobody needs
# a retention. It is some 2,900,000 tasks: those of eight hours at 100 a second, of a month at one.
MANY_BYTES = 5_000_000_000
GROWS_NEXT = (
    "`pgflowd db set retention_completed 30d` has them deleted 30 days after they completed; see"
    " docs/operate/retention.md"
)


class RunPlace(NamedTuple):
    """After which run to go on."""

    after_at: datetime
    after_run: UUID


class Pruned(NamedTuple):
    """How many runs went, None while another sweeper is at it; where to go on, None at the end."""

    runs: int | None
    place: RunPlace | None


class Kept(NamedTuple):
    """What a database keeps: bytes, about how many runs, since when, and for how long."""

    size: int
    runs: int | None  # None: never analysed
    since: datetime | None
    completed: str | None  # the settings of retention
    failed: str | None


class PruneSchedule:
    """The next part, and from where."""

    def __init__(self) -> None:
        self.look_at = float("inf")
        self.place: RunPlace | None = None
        self._retry_s = 0.0

    def connected(self, now: float) -> None:
        """Begin at the oldest run."""
        self.look_at, self.place = now, None

    def pruned(self, began_at: float, now: float, pruned: Pruned) -> None:
        self._retry_s = 0.0
        self.place = pruned.place
        self.look_at = now + (EVERY_S if pruned.place is None else now - began_at)

    def failed(self, now: float) -> None:
        self.place = None
        self._retry_s = doubled_s(self._retry_s, MIN_RETRY_S, EVERY_S)
        self.look_at = now + self._retry_s


def growth_problem(kept: Kept) -> Problem | None:
    """A database that is large, and from which completed runs are never deleted."""
    if kept.completed is not None or kept.size < MANY_BYTES:
        return None
    text = f"the database keeps {size(kept.size)} of runs, and no completed run is ever deleted"
    return Problem("W326", text, "database", GROWS_NEXT)


def told_retention(kept: Kept) -> str:
    """How long runs are kept, in words."""

    def told(after: Any) -> str:
        return "for ever" if after is None else f"for {after}"

    if kept.completed == kept.failed:
        return f"runs are kept {told(kept.completed)}"
    return f"completed runs are kept {told(kept.completed)}, others {told(kept.failed)}"
