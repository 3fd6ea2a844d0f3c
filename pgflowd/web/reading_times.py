"""
When a document is read again. Pure: the time is an argument.
"""

from __future__ import annotations

MIN_S = 0.25  # after a notification: at most four readings a second
SHARE = 20  # a document that takes long is read seldom: a twentieth of the time at most


class ReadingTimes:
    """When one document is due."""

    def __init__(self, now: float) -> None:
        self.due_at = now
        self._earliest = now
        self._is_known = False

    def was_read(self, began: float, ended: float, every_s: float) -> None:
        """It was read; without a reason it is due again after `every_s`."""
        share = SHARE if self._is_known else 1  # the first time a template is compiled, too
        self._is_known = True
        self._earliest = max(began + MIN_S, ended + share * (ended - began))
        self.due_at = max(self._earliest, ended + every_s)

    def hurry(self) -> None:
        """There is a reason to read it soon."""
        self.due_at = min(self.due_at, self._earliest)
