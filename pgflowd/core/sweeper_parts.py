"""
The parts of a sweeper's work: when each succeeded last, when it is tried again, with how much.

A part that fails loses no other one its turn. What the supervisor reads of them are numbers of the
sweeper's heartbeat; it judges by its own clock (`core.documents.sweeper_problems`), since a sweeper
whose call hangs tells nothing. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pgflowd.core.backoff import doubled_s
from pgflowd.core.portions import CallSize, may_be_too_large, whole

NEVER = float("inf")


class SweeperPart(StrEnum):
    """In the order of a turn. The values are words of problems and log records."""

    RELEASE = "tasks of ended workers"
    SWEEP = "stalled tasks"
    ATTEMPTS = "attempts without a message"
    RESEND = "lost messages"
    LIMITS = "places of limits"
    DUE = "what is due"
    QUEUES = "sleeping workers"
    ROW = "the daemon's row"
    PRUNE = "retention"
    VERSIONS = "versions to serve"
    HEALTH = "the database's health"
    WORKERS = "rows of workers"
    STATISTICS = "statistics"


SINGLE = whole(1)


@dataclass
class PartState:
    """One part. All moments are those of one monotonic clock."""

    succeeded_at: float
    portion: CallSize = SINGLE
    retry_at: float = -NEVER
    pause_s: float = 0.0
    put_off: str = ""  # why the first row is to be put off before the next try
    error: dict[str, str | None] | None = None  # of the last try: code, text, next

    def due(self, at: float) -> float:
        """When it is done next, if it wants to be at this moment."""
        return max(at, self.retry_at)

    def succeeded(self, now: float) -> None:
        self.succeeded_at, self.error = now, None
        self.retry_at, self.pause_s = -NEVER, 0.0
        self.portion = self.portion.grown()

    def failed(
        self,
        now: float,
        error: dict[str, str | None],
        sqlstate: str | None,
        min_s: float,
        max_s: float,
    ) -> None:
        """Try again with less, at once; with one row, without it; else after growing pauses."""
        self.error = error
        if may_be_too_large(sqlstate) and self.portion.most > 1 and not self.put_off:
            if self.portion.is_single:
                self.put_off = error["text"] or "no reason given"
            self.portion = self.portion.cut()
            self.retry_at = now
            return
        self.pause_s = doubled_s(self.pause_s, min_s, max_s)
        self.retry_at = now + self.pause_s


class Parts(dict[SweeperPart, PartState]):
    """All parts, and what heartbeats tell of them."""

    def __init__(self, now: float, most: dict[SweeperPart, int]) -> None:
        super().__init__({part: PartState(now, whole(most.get(part, 1))) for part in SweeperPart})

    def turned(self, now: float) -> None:
        """A turn has ended: what has not failed had nothing more to do."""
        for state in self.values():
            if state.error is None:
                state.succeeded_at = now

    def numbers(self) -> dict[str, Any]:
        return {
            part.value: {"at": state.succeeded_at, **(state.error or {})}
            for part, state in self.items()
        }
