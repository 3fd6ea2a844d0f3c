"""
What the dashboard writes to a log: logins, refusals, errors.

Served by `pgflowd web` these are records of the house's log, which the command passes in. Mounted,
they go to the logger `pgflowd.web` of the application.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

_LEVELS = {
    "debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING,
    "error": logging.ERROR,
}  # fmt: skip
MOST = 20  # refusals that are logged within a period: a flood of them must not fill the disk
PERIOD_S = 10.0


class Records(Protocol):
    """A log."""

    def write(self, level: str, event: str, **fields: Any) -> None: ...


class StandardRecords:
    """Writes to Python's logging."""

    def __init__(self) -> None:
        self._logger = logging.getLogger("pgflowd.web")

    def write(self, level: str, event: str, **fields: Any) -> None:
        shown = " ".join(f"{name}={value!r}" for name, value in fields.items() if value is not None)
        self._logger.log(_LEVELS[level], "%s %s", event, shown)


class Refusals:
    """Logs refused requests; of many within a short time the first, and then how many more."""

    def __init__(self, records: Records, clock: Callable[[], float]) -> None:
        self._records, self._clock = records, clock
        self._began, self._count = clock(), 0

    def write(self, **fields: Any) -> None:
        now = self._clock()
        if now - self._began >= PERIOD_S:
            if self._count > MOST:
                self._records.write("warning", "web.refused", count=self._count - MOST)
            self._began, self._count = now, 0
        self._count += 1
        if self._count <= MOST:
            self._records.write("warning", "web.refused", **fields)
