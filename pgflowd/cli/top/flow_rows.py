"""
The rows of flows in `pgflowd top`: from the daemon's status, and from the database. Pure.

A flow is an object as `status --json` has it. Where no daemon is, one is made of what the database
knows, without what only a daemon knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pgflowd.cli.terminal.daemon_view import LOSING, RIGHT, TITLES, any_waits, flow_cells
from pgflowd.cli.terminal.screen import DASH, Screen, TableCell
from pgflowd.core.documents.flows import ListedFlow
from pgflowd.core.documents.no_daemon import NOT_RUNNING
from pgflowd.core.documents.statistics import RunBucket, StepStats
from pgflowd.core.statuses import Marks
from pgflowd.core.supervision.tree import ChildState
from pgflowd.core.text import between

HOUR = "LAST HOUR"
_LEVELS = ("▁▂▃▄▅▆▇█", "_.:-=+*#")
_NUMBERS = {
    "queue": "queued", "running": "running", "oldest": "oldest_queued_s", "failures": "failed_1m",
}  # fmt: skip


@dataclass(frozen=True)
class FlowFacts:
    """What the database knows of all flows."""

    flows: Sequence[ListedFlow] = ()
    now: datetime | None = None
    buckets: Mapping[str, Sequence[RunBucket]] = field(default_factory=dict)
    minute: Sequence[StepStats] = ()  # what workers did within the last one


@dataclass(frozen=True)
class FlowRow:
    """A flow as the status has it, and what the status has not."""

    flow: Mapping[str, Any]
    listed: ListedFlow | None
    buckets: Sequence[RunBucket]
    is_served: bool  # by the daemon here

    @property
    def slug(self) -> str:
        return str(self.flow["slug"])

    @property
    def is_paused(self) -> bool:
        return self.listed is not None and self.listed.paused_at is not None


def flow_rows(
    status: Mapping[str, Any] | None, facts: FlowFacts, text: str = "", sort: str = "name"
) -> list[FlowRow]:
    """The flows of the daemon, else of the database, that have this text in their name."""
    listed = {name: each for each in facts.flows for name in (each.flow_slug, each.title)}
    is_served = status is not None
    flows = status["flows"] if status is not None else _from_database(facts)
    rows = []
    for flow in flows:
        known = listed.get(flow["slug"])
        slug = known.flow_slug if known else flow["slug"]
        rows.append(FlowRow(flow, known, facts.buckets.get(slug, ()), is_served))
    rows = [row for row in rows if not _is_idle_undo(row) and text.lower() in row.slug.lower()]
    rows.sort(key=lambda row: row.slug)
    if sort in _NUMBERS:
        rows.sort(key=lambda row: -_number(row.flow.get(_NUMBERS[sort])))
    return rows


def flow_table(rows: Sequence[FlowRow], screen: Screen) -> list[str]:
    """A line with titles, and one for each flow."""
    unknown = {"RESTARTS"}
    if not any_waits([dict(row.flow) for row in rows]):
        unknown.add("WAITING")
    if not any(row.is_served for row in rows):
        unknown |= {"P50", "P95"}  # which only a daemon knows
    kept = [at for at, title in enumerate(TITLES) if title not in unknown]
    cells = [_cells(row, screen) for row in rows]
    table = screen.table(
        [*(TITLES[at] for at in kept), HOUR],
        [[*(each[at] for at in kept), each[-1]] for each in cells],
        right=RIGHT,
        losing=(LOSING[0], HOUR, *LOSING[1:]),
    )
    return table.splitlines()


def totals(rows: Sequence[FlowRow]) -> list[str]:
    """What all flows do together, in words."""
    running, most, queued, ended = (
        round(sum(_number(row.flow.get(key)) for row in rows))
        for key in ("running", "max_concurrency", "queued", "completed_1m")
    )
    ended += round(sum(_number(row.flow.get("failed_1m")) for row in rows))
    of_most = f"{running} of {most} running" if most else f"{running} running"
    return [of_most, f"{queued} queued", f"{ended}/min"]


def _cells(row: FlowRow, screen: Screen) -> list[str | TableCell]:
    cells = flow_cells(dict(row.flow), screen)
    listed = row.listed
    if row.is_paused:
        cells[1] = screen.cell(Marks.PAUSED, " paused")
    elif not row.is_served and listed is not None:
        cells[1] = _workers(listed, screen)
    if not row.is_served:
        cells[2] = str(row.flow["running"])
    return [*cells, _chart(row.buckets, screen)]


def _workers(listed: ListedFlow, screen: Screen) -> TableCell:
    """Who serves a flow, as the database knows it."""
    if listed.workers:
        return screen.cell(Marks.UP, f" {listed.workers} alive")
    if listed.is_asleep:
        return screen.cell(Marks.ASLEEP, " asleep")
    return screen.cell(Marks.WARNING if listed.active_runs else Marks.OFF, " no worker")


def _chart(buckets: Sequence[RunBucket], screen: Screen) -> str | TableCell:
    """A sign for each piece of the last hour; those without a run are lowest."""
    counts = [bucket.ok + bucket.failed for bucket in buckets]
    most = max(counts, default=0)
    if not most:
        return screen.sign(DASH)
    levels = _LEVELS[not screen.unicode]
    top = len(levels) - 1
    return "".join(levels[max(round(count / most * top), 1) if count else 0] for count in counts)


def _from_database(facts: FlowFacts) -> list[dict[str, Any]]:
    """The flows, as a status has them."""
    blank = dict.fromkeys(("pid", "max_concurrency", "p50_s", "p95_s", "up_s", "asleep_s"))
    return [
        {
            **blank,
            "slug": flow.title,
            "undoes": flow.undoes,
            "state": ChildState.ASLEEP.value if flow.is_asleep else NOT_RUNNING,
            "running": flow.running,
            "queued": flow.queued,
            "waiting": flow.waiting,
            "oldest_queued_s": between(flow.oldest_queued_at, facts.now),
            "completed_1m": sum(each.completed for each in _steps(facts, flow)),
            "failed_1m": sum(each.failures for each in _steps(facts, flow)),
            "restarts": 0,
        }
        for flow in facts.flows
    ]


def _steps(facts: FlowFacts, flow: ListedFlow) -> list[StepStats]:
    return [each for each in facts.minute if each.step_slug and each.flow_slug == flow.flow_slug]


def _is_idle_undo(row: FlowRow) -> bool:
    """Whether it undoes runs of another flow, and has nothing to do."""
    flow = row.flow
    has_work = flow["running"] or flow["queued"] or flow.get("waiting")
    return bool(flow.get("undoes")) and not has_work and flow["state"] != ChildState.PARKED.value


def _number(value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else 0.0
