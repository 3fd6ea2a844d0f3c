"""
The queries that count: what flows did, what needs attention, and the newest runs by step.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

from pgflowd.core.documents.flows import (
    FlowGrid,
    FlowWork,
    GridRun,
    OverviewCounts,
    RunBucket,
    StepStats,
)
from pgflowd.core.json import decode
from pgflowd.core.statuses import RunStatus, StepStatus
from pgflowd.db.query import Query, Rows, only

BUCKETS = 12  # of an hour: five minutes each
NO_RUNS = RunBucket(0, 0)


def roll_up_minutes() -> Query[int]:
    """Add old minutes of the statistics up to hours; return how many."""
    return Query("select pgflowd.roll_up_minutes()", (), only)


def flow_stats(flow_slug: str | None, since_s: float) -> Query[list[StepStats]]:
    """Return what workers did within this time, by flow and step; step '' has the runs."""
    params = (flow_slug, since_s)
    return Query(_FLOW_STATS, params, lambda rows: [StepStats(*(*row, since_s)) for row in rows])


def flow_buckets(
    flow_slug: str | None, since_s: float, count: int = BUCKETS
) -> Query[dict[str, list[RunBucket]]]:
    """Return how many runs of each flow ended in so many pieces of this time, the oldest first."""

    def read(rows: Rows) -> dict[str, list[RunBucket]]:
        found: dict[str, list[RunBucket]] = defaultdict(lambda: [NO_RUNS] * count)
        for slug, place, ok, failed in rows:
            found[slug][place] = RunBucket(ok, failed)
        return found

    return Query(_FLOW_BUCKETS, (flow_slug, since_s, count), read)


def flow_work(flow_slug: str | None) -> Query[list[FlowWork]]:
    """Return the open work of flows, or of one."""

    def read(rows: Rows) -> list[FlowWork]:
        return [replace(FlowWork(*row), waits=decode(row[5]) or {}) for row in rows]

    return Query(_FLOW_WORK, (flow_slug, flow_slug), read)


_FLOW_STATS = """
select flow_slug, step_slug, completed, failed, timed_out, crashed, ran_p50_s, ran_p95_s,
       waited_p50_s, waited_p95_s
  from pgflowd.flow_stats(%s, make_interval(secs => %s))
"""
_FLOW_BUCKETS = """
select flow_slug, bucket, ok, failed from pgflowd.flow_buckets(%s, make_interval(secs => %s), %s)
"""
_FLOW_WORK = """
select status.flow_slug, status.queued, status.running, status.delayed, status.oldest_queued_s,
       (select jsonb_object_agg(waits.kind, waits.waiting) from pgflowd.waiting_tasks() as waits
         where waits.flow_slug = status.flow_slug)
  from pgflowd.flow_status as status
 where %s::text is null or status.flow_slug = any (pgflowd.flows_of(%s))
 order by status.flow_slug
"""


# what needs attention


def overview_counts() -> Query[OverviewCounts]:
    return Query(_COUNTS, (), lambda rows: OverviewCounts(*rows[0]))


_COUNTS = "select failed, people, quarantined, stalled, dead from pgflowd.overview_counts()"


# the newest runs of a flow, with the status of their steps


MAX_RUNS = 30


def flow_grid(flow_slug: str, most: int = MAX_RUNS) -> Query[FlowGrid]:
    """Return the newest runs of a flow, of all its versions, that have begun."""

    def read(rows: Rows) -> FlowGrid:
        return FlowGrid(flow_slug, [_run(*row) for row in rows])

    return Query(_FLOW_GRID, (flow_slug, most), read)


def _run(*row: Any) -> GridRun:
    *values, slugs, statuses = row
    steps = dict(zip(slugs or (), map(StepStatus, statuses or ()), strict=True))
    run = GridRun(*[*values, steps])
    return replace(run, status=RunStatus(run.status))


_FLOW_GRID = """
select run_id, flow_slug, status, started_at, ended_at, steps, statuses
  from pgflowd.flow_grid(%s, %s)
"""
