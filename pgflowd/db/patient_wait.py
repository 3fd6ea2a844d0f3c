"""
Waits for the end of a run, also while the database is away.
"""

from __future__ import annotations

import time
from uuid import UUID

from pgflowd.core.backoff import doubled_s
from pgflowd.core.documents.runs import Run
from pgflowd.db.operations import (
    MAX_RECONNECT_S,
    MIN_RECONNECT_S,
    Operation,
    wait,
    wait_timeout,
)
from pgflowd.errors import Unreachable


class PatientWait:
    """
    A wait for the end of a run that continues after the connection was lost.

    It does not wait for a database that was never reached: its URL may be wrong. `was_started`: the
    run was started a moment ago, by `start_followed`.
    """

    def __init__(self, run_id: UUID, timeout_s: float | None, *, was_started: bool = False) -> None:
        self._run_id, self._timeout_s = run_id, timeout_s
        self._until = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        self._was_reached = self._is_followed = was_started
        self._pause_s = MIN_RECONNECT_S

    def operation(self) -> Operation[Run]:
        self._was_reached = True  # an operation begins when there is a connection for it
        left_s = None if self._timeout_s is None else max(self._until - time.monotonic(), 0.0)
        is_followed, self._is_followed = self._is_followed, False
        operation = wait(self._run_id, self._timeout_s, left_s, is_followed=is_followed)
        return (yield from operation)

    def pause_s(self, error: Unreachable) -> float:
        """Return how long to wait before the next try; raise if there is none."""
        if not self._was_reached:
            raise error
        if time.monotonic() >= self._until:
            raise wait_timeout(self._run_id, self._timeout_s) from error
        pause_s = self._pause_s
        self._pause_s = doubled_s(pause_s, MIN_RECONNECT_S, MAX_RECONNECT_S)
        return max(min(pause_s, self._until - time.monotonic()), 0.0)
