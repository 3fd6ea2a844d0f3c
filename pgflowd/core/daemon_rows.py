"""
When a daemon's row in the database is written: every interval of its sweeper, and while somebody
looks at the daemons every two seconds. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

LOOK_LASTS_S = 60.0  # so long a notification counts; who goes on looking sends another one
LOOKED_AT_EVERY_S = 2.0
NEVER = float("inf")


@dataclass
class RowTimes:
    """All moments are those of one monotonic clock."""

    interval_s: float
    ask_at: float = NEVER  # when the status is asked for
    _looked_until: float = -NEVER
    _asked_at: float = -NEVER

    def connected(self, now: float) -> None:
        """The row may be as old as the connection that was lost."""
        self.ask_at = now

    def looked_at(self, now: float) -> None:
        """Somebody looks at the daemons."""
        self._looked_until = now + LOOK_LASTS_S
        self.ask_at = min(self.ask_at, max(now, self._asked_at + LOOKED_AT_EVERY_S))

    def asked(self, now: float) -> None:
        """The status was asked for; an answer that does not come is asked for again."""
        is_looked_at = now + LOOKED_AT_EVERY_S <= self._looked_until
        pause_s = min(self.interval_s, LOOKED_AT_EVERY_S) if is_looked_at else self.interval_s
        self._asked_at, self.ask_at = now, now + pause_s
