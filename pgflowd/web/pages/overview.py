"""The first page: what flows have to do, what needs attention, and the newest failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pgflowd.core.documents import Hidden, Named, shown
from pgflowd.core.documents.flows import ListedFlow, OverviewCounts, RunBucket
from pgflowd.core.documents.runs import ListedRun, RunPage
from pgflowd.core.run_filter import RunFilter
from pgflowd.core.statuses import RunStatus
from pgflowd.db.flows import flow_buckets, list_flows, overview_counts
from pgflowd.db.query import execute_together
from pgflowd.db.run_search import search_runs
from pgflowd.web.pages.page import Page, PageRequest

SINCE_S = 3600.0
BUCKETS = 30  # of a chart: each two minutes
FAILURES = 8


@dataclass(frozen=True)
class Overview:
    """What flows have to do and did lately, what needs attention, and the newest failed runs."""

    flows: Annotated[Sequence[ListedFlow], "all flows"]
    counts: Annotated[OverviewCounts, "what needs somebody"]
    buckets: Annotated[
        Mapping[str, Sequence[RunBucket]],
        "of flows of which runs ended within the last hour: how many were `ok` and how many"
        " `failed` in each part of it",
    ]
    failures: Hidden[RunPage]

    @property
    def shown_flows(self) -> list[ListedFlow]:
        """Those that undo runs of others are shown if they have work."""
        return [flow for flow in self.flows if not flow.undoes or flow.open_runs]

    @property
    @shown
    def failed(self) -> Annotated[Sequence[ListedRun], Named("failures"), "runs that failed last"]:
        return self.failures.runs

    def buckets_of(self, flow: ListedFlow) -> Sequence[RunBucket]:
        return self.buckets.get(flow.flow_slug) or [RunBucket(0, 0)] * BUCKETS


def overview(request: PageRequest) -> Overview:
    queries: list[Any] = [
        list_flows(), overview_counts(), flow_buckets(None, SINCE_S, BUCKETS),
        search_runs(RunFilter(statuses=(RunStatus.FAILED,)), FAILURES),
    ]  # fmt: skip
    return Overview(*execute_together(request.conn, queries))


PAGES = (Page("/", "overview.html", overview, lambda _: ["pgflowd", "flows", "list"]),)
