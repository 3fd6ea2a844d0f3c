"""The first page; the flows, and each of them; the form that starts a run; the schedules."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import islice
from typing import Annotated, Any
from uuid import UUID

from pgflowd.core.definition.options import Column, OptionValues, option_cells, used_columns
from pgflowd.core.definition.shape import StepPlan, plan_of
from pgflowd.core.documents import Hidden, Inline, Named, shown
from pgflowd.core.documents.flows import (
    FlowGrid,
    FlowStats,
    ListedFlow,
    ListedLimit,
    OverviewCounts,
    RunBucket,
    StepStats,
    Version,
    WorkerCaps,
    stats_of,
    unserved_needs,
)
from pgflowd.core.documents.runs import ListedRun, RunPage
from pgflowd.core.documents.schedules import ListedSchedule
from pgflowd.core.graph import Graph, graph_of
from pgflowd.core.lookup import unknown_flow
from pgflowd.core.redact import HIDDEN
from pgflowd.core.run_filter import RunFilter
from pgflowd.core.statuses import RunStatus
from pgflowd.core.ticks import expression_fault, ticks_after, zone_fault, zone_of
from pgflowd.core.typed.codec import example_of
from pgflowd.db import flows
from pgflowd.db.definitions import option_values, versions_of
from pgflowd.db.operations import new_run_id
from pgflowd.db.query import database_time
from pgflowd.db.run_details import search_runs
from pgflowd.db.runs import started_runs
from pgflowd.db.waits import list_limits, list_schedules
from pgflowd.web.pages.page import Page, PageRequest
from pgflowd.web.text import visible

TIMES = {"1h": 3600.0, "24h": 86400.0, "7d": 7 * 86400.0, "90d": 90 * 86400.0}
MAX_LIMITS = 20
BUCKETS = 24  # pieces of the time that the statistics are of


@dataclass(frozen=True)
class Flows:
    """The flows, and what they have to do."""

    flows: Annotated[Sequence[ListedFlow], "all flows"]

    @property
    def shown_flows(self) -> list[ListedFlow]:
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
        return used_columns(cells)

    def cells(self, step: StepPlan) -> Mapping[Column, str]:
        return option_cells(step.options)

    def stats_of(self, step: StepPlan) -> StepStats | None:
        of_steps = self.stats.steps if self.stats else ()
        return next((each for each in of_steps if each.step_slug == step.slug), None)

    @property
    def missing(self) -> list[str]:
        """What steps need and no living worker has."""
        return unserved_needs(self.steps, self.caps)


def flow_list(request: PageRequest) -> Flows:
    """All flows; of those with versions the current one."""
    return Flows(request.read(flows.list_flows()))


def flow_page(request: PageRequest) -> ShownFlow:
    """A flow by its name, or one of its versions."""
    name = request.path["flow"]
    since = request.one_of("since", list(TIMES)) or "24h"
    rows = request.read(flows.list_flows(with_old=True))
    named = [row for row in rows if name in (row.name, row.flow_slug)]
    if not named:
        raise unknown_flow(name, [row.flow_slug for row in rows])
    flow = next((row for row in named if row.name == name), named[0])
    slug, since_s = flow.flow_slug, TIMES[since]
    shape, caps, versions, schedules, limits, works, found, buckets, grid = request.read_all(
        flows.flow_shape(slug), flows.worker_caps(slug), versions_of(name), list_schedules(name),
        list_limits(slug, MAX_LIMITS), flows.flow_work(name), flows.flow_stats(name, since_s),
        flows.flow_buckets(name, since_s, BUCKETS), flows.flow_grid(name),
    )  # fmt: skip
    shape = shape or {"steps": []}
    tuned = [each for each in request.read(option_values(slug, shape)) if each.is_tuned]
    stats = next(iter(stats_of(works, found, since_s, buckets)), None)
    return ShownFlow(flow, shape, caps, versions, schedules, limits, tuned, stats, since, grid)


# The first page: what flows have to do, what needs attention, and the newest failures.
SINCE_S = 3600.0
PARTS = 30  # of a chart: each two minutes
FAILURES = 8


@dataclass(frozen=True)
class Overview(Flows):
    """What flows have to do and did lately, what needs attention, and the newest failed runs."""

    counts: Annotated[OverviewCounts, "what needs somebody"]
    buckets: Annotated[
        Mapping[str, Sequence[RunBucket]],
        "of flows of which runs ended within the last hour: how many were `ok` and how many"
        " `failed` in each part of it",
    ]
    failures: Hidden[RunPage]

    @property
    @shown
    def failed(self) -> Annotated[Sequence[ListedRun], Named("failures"), "runs that failed last"]:
        return self.failures.runs

    def buckets_of(self, flow: ListedFlow) -> Sequence[RunBucket]:
        return self.buckets.get(flow.flow_slug) or [RunBucket(0, 0)] * PARTS


def overview(request: PageRequest) -> Overview:
    failed = search_runs(RunFilter(statuses=(RunStatus.FAILED,)), FAILURES)
    buckets = flows.flow_buckets(None, SINCE_S, PARTS)
    return Overview(*request.read_all(flows.list_flows(), flows.overview_counts(), buckets, failed))


_LONGEST_INPUT = 20_000  # characters; a form holds no more


@dataclass(frozen=True)
class StartForm:
    """A flow, the id that its next run gets, and an input to begin with."""

    flow: str
    run_id: Annotated[UUID, "the id that the run will have"]
    input: Annotated[Any, "what the form begins with"]  # as it may be shown
    is_of_last_run: Hidden[bool]
    schema: Annotated[Mapping[str, Any] | None, "the JSON Schema of the input, if there is one"]

    @property
    def repeats(self) -> bool:
        """Whether it begins with the last input, which is so if that is short and hides nothing."""
        text = _indented(self.input)
        return self.is_of_last_run and len(text) <= _LONGEST_INPUT and f'"{HIDDEN}' not in text

    @property
    def text(self) -> str:
        """The input as people edit it."""
        return _indented(self.input if self.repeats else _example(self.schema))


def start_form(request: PageRequest) -> StartForm:
    """The input of the flow's last run, else an example of its schema."""
    flow = request.path["flow"]
    known = request.read(flows.flow_names())
    if flow not in known:
        raise unknown_flow(flow, known)
    schema = request.read(flows.input_schema(flow))
    last = request.read(started_runs(flow, 1))
    input = last[0].input if last else _example(schema)
    return StartForm(flow, new_run_id(), input, bool(last), schema)


def _example(schema: Mapping[str, Any] | None) -> Any:
    return {} if schema is None else example_of(schema)


def _indented(value: Any) -> str:
    """As JSON that people edit; a character that nobody would see is an escape of JSON."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return text if visible(text) == text else json.dumps(value, indent=2)


TICKS = 5


@dataclass(frozen=True)
class ShownSchedules:
    """The schedules by their names, as they were at `now`."""

    schedules: Sequence[ListedSchedule]
    now: Hidden[datetime]

    def ticks(self, schedule: ListedSchedule) -> list[datetime]:
        """The next ticks, as the clock of their zone shows them; none if it cannot be read."""
        cron, zone = schedule.cron, schedule.timezone
        if expression_fault(cron) or zone_fault(zone):
            return []
        ticks = islice(ticks_after(cron, zone, self.now), TICKS)
        return [tick.astimezone(zone_of(zone)) for tick in ticks]


def schedule_list(request: PageRequest) -> ShownSchedules:
    return ShownSchedules(*request.read_all(list_schedules(), database_time()))


PAGES = (
    Page("/", "overview.html", overview, "flows list"),
    Page("/flows", "flows.html", flow_list, "flows list"),
    Page(
        "/flows/{flow}", "flow.html", flow_page, "flows show {flow}",
        others=frozenset({"since", "step"}),
    ),
    Page("/flows/{flow}/start", "start.html", start_form, "runs start {flow} INPUT"),
    Page("/schedules", "schedules.html", schedule_list, "schedules list"),
)  # fmt: skip
