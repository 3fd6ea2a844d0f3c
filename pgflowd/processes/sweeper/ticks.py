"""
Lets schedules tick: computes their ticks up to the database's time, and has it start the runs.

Several sweepers may do so at once, and die at any moment: the database lets one of them begin, and
starts each tick's run once. A schedule that starts no run is a problem, E327.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import psycopg

from pgflowd.core.metrics.counters import Counters
from pgflowd.core.metrics.definitions import SCHEDULE_TICKS
from pgflowd.core.portions import whole
from pgflowd.core.text import counted
from pgflowd.core.ticks import planned_ticks
from pgflowd.db.errors import failure_of
from pgflowd.db.schedules import (
    DueSchedule,
    PlannedTicks,
    due_schedules,
    postpone,
    schedule_troubles,
    tick,
)
from pgflowd.errors import PgflowdError, Problem

MAX_SCHEDULES = 60  # of one look, so that nothing else that is due waits for long
TOGETHER = 20  # in one transaction: a commit takes longer than a start
UNREADABLE_S = 60.0  # until one that cannot be computed is looked at again: zones may be installed
NEXT = "see `pgflowd schedules list`; `pgflowd schedules fire NAME` starts a run by hand"


class Ticks:
    """The schedules that are due, and those that do not start their runs."""

    def __init__(self, execute: Callable[..., Any], counters: Counters) -> None:
        self._execute = execute
        self._counters = counters
        self._failed: set[str] = set()  # schedules that could not start runs, in this look
        self._problems: list[Problem] = []
        self._together = whole(TOGETHER)

    @property
    def problems(self) -> list[Problem]:
        return self._problems

    def do(self, conn: psycopg.Connection[Any]) -> int:
        """Let those tick that are due; return how many have."""
        self._failed.clear()
        due = self._execute(conn, due_schedules(MAX_SCHEDULES))
        planned = [plan for schedule in due if (plan := self._plan(conn, schedule))]
        size = self._together.size
        some = [planned[at : at + size] for at in range(0, len(planned), size)]
        ticked = [plan for each in some for plan in self._tick(conn, each)]
        self._together = self._together.grown()
        for plan in ticked:
            if plan.fires and plan.due.name not in self._failed:
                self._counters.count(SCHEDULE_TICKS, plan.due.name, "started", by=len(plan.fires))
        return len(ticked) + len(due) - len(planned)

    def _tick(self, conn: psycopg.Connection[Any], some: list[PlannedTicks]) -> list[PlannedTicks]:
        """Let these tick together; after a failure fewer, and one that fails alone is postponed."""
        try:
            ticked: list[PlannedTicks] = self._execute(conn, tick(some))
            return ticked
        except (psycopg.Error, PgflowdError) as error:
            if conn.closed or not self._together.is_single:
                self._together = self._together.cut()
                raise
            self._execute(conn, postpone(some[0].due, failure_of(error)[1], UNREADABLE_S))
            return []

    def check(self, conn: psycopg.Connection[Any]) -> None:
        """Note which schedules do not start their runs."""
        found = self._execute(conn, schedule_troubles())
        self._problems = []
        if found:
            name, why = found[0]
            have = f"{counted(len(found), 'schedule')} {'has' if len(found) == 1 else 'have'}"
            text = f"{have} not started a run in time; {name}: {why}"
            self._problems = [Problem("E327", text, "database", NEXT)]

    def _plan(self, conn: psycopg.Connection[Any], due: DueSchedule) -> PlannedTicks | None:
        """What it is to start; one that cannot be read is postponed."""
        try:
            fires, next_at = planned_ticks(
                due.cron, due.timezone, due.ticks_from, due.read_at, due.catchup
            )
        except ValueError as error:
            self._execute(conn, postpone(due, str(error), UNREADABLE_S))
            return None
        return PlannedTicks(due, fires, next_at)

    def on_not_started(self, detail: str) -> None:
        """The database could not start a run of a schedule; its row keeps the error."""
        name = json.loads(detail)["schedule"]
        self._failed.add(name)
        self._counters.count(SCHEDULE_TICKS, name, "failed")


def is_of_schedule(detail: str) -> bool:
    """Whether a notice about what could not be done is about a schedule."""
    return "schedule" in json.loads(detail)
