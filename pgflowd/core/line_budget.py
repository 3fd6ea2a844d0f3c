"""How much of what a task prints and logs is kept."""

from __future__ import annotations

MAX_LOGGED_BYTES = 1024 * 1024  # of one task
MAX_LINES = 10_000


class LineBudget:
    """How much of a task may still be logged; all its streams share it."""

    def __init__(self) -> None:
        self.refill()

    def refill(self) -> None:
        self.room, self.lines = MAX_LOGGED_BYTES, MAX_LINES

    @property
    def is_spent(self) -> bool:
        return self.room <= 0 or self.lines <= 0
