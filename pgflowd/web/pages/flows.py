"""The flows, and each of them: its graph, options, statistics, versions, schedules and limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pgflowd.core.definition.options import FOLLOWING, Column, OptionValues, option_cells
from pgflowd.core.definition.plan import StepPlan, plan_of
from pgflowd.core.documents import Hidden, Inline
from pgflowd.core.documents.flows import (
    FlowGrid,
    FlowStats,
    ListedFlow,
    ListedLimit,
    StepStats,
    Version,
    WorkerCaps,
    stats_of,
    unserved_needs,
)
from pgflowd.core.documents.schedules import ListedSchedule
from pgflowd.core.graph import Graph, graph_of
from pgflowd.core.lookup import unknown_flow
from pgflowd.db.definitions import option_values, versions_of
from pgflowd.db.flows import (
    flow_buckets,
    flow_grid,
    flow_shape,
    flow_stats,
    flow_work,
    list_flows,
    worker_caps,
)
from pgflowd.db.query import execute, execute_together
from pgflowd.db.schedules import list_schedules
from pgflowd.db.waits import list_limits
from pgflowd.web.pages.page import Page, PageRequest

TIMES = {"1h": 3600.0, "24h": 86400.0, "7d": 7 * 86400.0, "90d": 90 * 86400.0}
MAX_LIMITS = 20
BUCKETS = 24  # pieces of the time that the statistics are of
_IF_USED = {option.column for option in FOLLOWING}  # shown only where a step has one


@dataclass(frozen=True)
class Flows:
    """The flows, and what they have to do."""

    flows: Sequence[ListedFlow]

    @property
    def shown(self) -> list[ListedFlow]:
        """Those that undo runs of others are shown if they have work."""
        return [flow for flow in self.flows if not flow.undoes or flow.open_runs]


@dataclass(frozen=True)
class ShownFlow:
    """A flow, and all that is known of it."""

    flow: Inline[ListedFlow]
    shape: Mapping[str, Any]
    caps: Sequence[WorkerCaps]
    versions: Sequence[Version]
    schedules: Sequence[ListedSchedule]
    limits: Hidden[Sequence[ListedLimit]]
    tuned: Hidden[Sequence[OptionValues]]  # options that somebody has changed in the database
    stats: Hidden[FlowStats | None]
    since: Hidden[str]
    grid: FlowGrid

    # a template asks for these with each step

    @cached_property
    def graph(self) -> Graph:
        return graph_of(self.shape)

    @cached_property
    def steps(self) -> Sequence[StepPlan]:
        return list(plan_of(self.shape).steps.values())

    @cached_property
    def columns(self) -> list[Column]:
        """The columns of the table of options: those that some step uses."""
        cells = [self.cells(step) for step in self.steps]
        return [one for one in Column if one not in _IF_USED or any(each[one] for each in cells)]

    def cells(self, step: StepPlan) -> Mapping[Column, str]:
        return option_cells(step.options)

    def stats_of(self, step: StepPlan) -> StepStats | None:
        return self._stats_by_step.get(step.slug)

    @cached_property
    def _stats_by_step(self) -> Mapping[str, StepStats]:
        return {each.step_slug: each for each in (self.stats.steps if self.stats else [])}

    @property
    def missing(self) -> list[str]:
        """What steps need and no living worker has."""
        return unserved_needs(self.steps, self.caps)


def flow_list(request: PageRequest) -> Flows:
    """All flows; of those with versions the current one."""
    flows = execute(request.conn, list_flows())
    return Flows(flows)


def flow_page(request: PageRequest) -> ShownFlow:
    """A flow by its name, or one of its versions."""
    name, conn = request.path["flow"], request.conn
    since = request.one_of("since", list(TIMES)) or "24h"
    rows = execute(conn, list_flows(with_old=True))
    named = [row for row in rows if name in (row.name, row.flow_slug)]
    if not named:
        raise unknown_flow(name, [row.flow_slug for row in rows])
    flow = next((row for row in named if row.name == name), named[0])
    slug, since_s = flow.flow_slug, TIMES[since]
    queries: list[Any] = [
        flow_shape(slug), worker_caps(slug), versions_of(name), list_schedules(name),
        list_limits(slug, MAX_LIMITS), flow_work(name), flow_stats(name, since_s),
        flow_buckets(name, since_s, BUCKETS), flow_grid(name),
    ]  # fmt: skip
    read = execute_together(conn, queries)
    shape, caps, versions, schedules, limits, works, found, buckets, grid = read
    shape = shape or {"steps": []}
    tuned = [each for each in execute(conn, option_values(slug, shape)) if each.is_tuned]
    stats = next(iter(stats_of(works, found, since_s, buckets)), None)
    return ShownFlow(flow, shape, caps, versions, schedules, limits, tuned, stats, since, grid)


PAGES = (
    Page("/flows", "flows.html", flow_list, lambda _: ["pgflowd", "flows", "list"]),
    Page(
        "/flows/{flow}", "flow.html", flow_page,
        lambda request: ["pgflowd", "flows", "show", request.path["flow"]],
        frozenset({"since", "step"}),
    ),
)  # fmt: skip
