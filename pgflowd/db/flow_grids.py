"""The query for the newest runs of a flow with the status of their steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pgflowd.core.documents.flow_grid import FlowGrid, GridRun
from pgflowd.core.statuses import RunStatus, StepStatus
from pgflowd.db.query import Query, Rows

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
