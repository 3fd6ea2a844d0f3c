"""
The restarts that are allowed in a sliding window; beyond it the supervisor gives up or parks.

docs/design/supervision.md, rules 20 and 21: `most` restarts within `period_s` are allowed and the
next is not. A restart exactly one period old still counts. Times are monotonic. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Budget:
    """How many restarts were spent, and when."""

    most: int
    period_s: float
    spent: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.most < 0 or self.period_s < 0:
            raise ValueError(f"a budget of {self.most} in {self.period_s} s is negative")

    def count(self, now: float) -> int:
        """Return how many restarts of the window are spent."""
        return sum(now - at <= self.period_s for at in self.spent)

    def spend(self, now: float) -> tuple[Budget, bool]:
        """Return the budget after one more restart, and whether that one is allowed."""
        recent = tuple(at for at in self.spent if now - at <= self.period_s)
        return replace(self, spent=(*recent, now)), len(recent) < self.most
