"""
The queries about schedules: those of operators and clients, and those of the sweeper, which
computes the ticks and has the database start their runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from pgflowd.core.definition.schedule import taken_problem
from pgflowd.core.documents.schedules import ListedSchedule
from pgflowd.db.query import Query, Rows, documents, only
from pgflowd.errors import Problem


class DueSchedule(NamedTuple):
    """A schedule whose ticks are to be computed, from `ticks_from` to `read_at`."""

    name: str
    cron: str
    timezone: str
    catchup: str
    due_at: datetime
    ticks_from: datetime
    read_at: datetime


class ScheduleTrouble(NamedTuple):
    """A schedule that does not start its runs, and why."""

    name: str
    error: str


def list_schedules(flow_slug: str | None = None) -> Query[list[ListedSchedule]]:
    """Return all schedules, or those of one flow, by their names."""
    columns = {"input": "input::text", "last_run_id": "last_run_id::text"}
    return documents(ListedSchedule, "pgflowd.list_schedules(%s)", (flow_slug,), **columns)


def taken_names(flow_slug: str, names: Sequence[str]) -> Query[list[Problem]]:
    """Return a problem for each schedule of a flow's code whose name somebody else has."""

    def read(rows: Rows) -> list[Problem]:
        return [taken_problem(name, flow_slug, owner, origin) for name, owner, origin in rows]

    return Query(_TAKEN, (list(names), flow_slug), read)


def due_schedules(max_rows: int) -> Query[list[DueSchedule]]:
    """Return the schedules that are due."""
    return documents(DueSchedule, "pgflowd.due_schedules(%s)", (max_rows,))


class PlannedTicks(NamedTuple):
    """What a schedule is to start, and when it ticks next."""

    due: DueSchedule
    fires: Sequence[datetime]
    next_at: datetime


def tick(planned: Sequence[PlannedTicks]) -> Query[list[PlannedTicks]]:
    """Let some tick, in one transaction; return those that did, as others may be quicker."""
    one = "select %s::int, pgflowd.tick(%s, %s, %s, %s::timestamptz[])"
    params = [
        (at, each.due.name, each.due.due_at, each.next_at, list(each.fires))
        for at, each in enumerate(planned)
    ]
    flat = [value for values in params for value in values]
    query = " union all ".join([one] * len(planned))
    return Query(query, flat, lambda rows: [planned[at] for at, has_ticked in rows if has_ticked])


def postpone(due: DueSchedule, error: str, for_s: float) -> Query[bool]:
    """Look at a schedule again later, since its ticks cannot be computed."""
    query = "select pgflowd.postpone_schedule(%s, %s, %s, %s)"
    return Query(query, (due.name, due.due_at, error, for_s), only)


def schedule_troubles() -> Query[list[ScheduleTrouble]]:
    """Return the schedules that do not start their runs."""
    return documents(ScheduleTrouble, "pgflowd.schedule_troubles()")


_TAKEN = """
select name, flow_slug, origin from pgflowd.list_schedules()
 where name = any (%s) and (flow_slug <> %s or origin <> 'code')
"""
