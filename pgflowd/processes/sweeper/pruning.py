"""
Deletes what is older than the settings of retention, a part at a time, and tells when a database
grows without one (W326), or when deleting fails (E325).

`core.sweeper` decides when it does the next part.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psycopg

from pgflowd.core.sweeper import PruneSchedule, growth_problem, may_be_too_large
from pgflowd.core.text import counted, short_id
from pgflowd.db.errors import sqlstate_of
from pgflowd.db.runs import kept, prune_expired
from pgflowd.errors import PgflowdError, Problem
from pgflowd.host.logs import Log

TRY_AGAIN = "it is tried again; `pgflowd runs prune --older-than 30d` shows the same error"

TOO_LARGE = "it is tried again each hour; raise [database] statement_timeout"


class Pruning:
    """The parts, and what is wrong."""

    def __init__(self, execute: Callable[..., Any], log: Log) -> None:
        self._execute = execute
        self._log = log
        self._schedule = PruneSchedule()
        self._runs = 0  # deleted since it began at the oldest one
        self._problem: Problem | None = None
        self._skipped: Problem | None = None  # of this round

    @property
    def look_at(self) -> float:
        return self._schedule.look_at

    def connected(self, now: float) -> None:
        self._schedule.connected(now)

    def problems(self) -> list[Problem]:
        return [self._problem] if self._problem else []

    def do(self, conn: psycopg.Connection[Any], most: int) -> bool:
        """Do the next part; whether there is another problem, or none any more. Raise what less at
        once may mend."""
        schedule, began_at = self._schedule, time.monotonic()
        known = self._problem
        try:
            pruned = self._execute(conn, prune_expired(schedule.place, most))
            schedule.pruned(began_at, time.monotonic(), pruned)
            self._runs += pruned.runs or 0
            if schedule.place is None:
                self._end_round(conn)
        except (psycopg.Error, PgflowdError) as error:
            if conn.closed or may_be_too_large(sqlstate_of(error)):
                raise
            schedule.failed(time.monotonic())
            text = f"runs older than the retention cannot be deleted: {_first_line(error)}"
            self._problem = Problem("E325", text, "database", TRY_AGAIN)
        return self._problem != known

    def skip(self, conn: psycopg.Connection[Any], why: str) -> None:
        """Leave out the next run: it cannot be deleted alone."""
        now = time.monotonic()
        pruned = self._execute(conn, prune_expired(self._schedule.place, 1, is_skipped=True))
        self._schedule.pruned(now, now, pruned)
        name = "a run" if pruned.place is None else f"run {short_id(pruned.place.after_run)}"
        text = f"{name} with all that belongs to it takes too long to be deleted: {why}"
        self._skipped = self._problem = Problem("E325", text, "database", TOO_LARGE)

    def _end_round(self, conn: psycopg.Connection[Any]) -> None:
        self._problem = self._skipped or growth_problem(self._execute(conn, kept()))
        if self._runs:
            text = f"{counted(self._runs, 'run')} deleted, older than the retention"
            self._log.info("sweeper.pruned", count=self._runs, error=text)
        self._runs, self._skipped = 0, None


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
