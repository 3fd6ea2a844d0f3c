"""Schedules, as programs and screens see them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pgflowd.core.documents import FlowSlug, ListColumn, shown
from pgflowd.core.finding import Finding, ok, warning
from pgflowd.core.statuses import RunStatus
from pgflowd.core.text import ago, counted
from pgflowd.core.ticks import expression_fault, in_words


@dataclass(frozen=True)
class ListedSchedule:
    """A schedule, its next tick, and the last run that it has started."""

    name: Annotated[str, ListColumn("NAME")]
    flow_slug: Annotated[FlowSlug, ListColumn("FLOW")]
    cron: Annotated[str, "its expression"]
    timezone: Annotated[str, "in which it counts"]
    input: Annotated[Any, "of its runs"]
    overlap: Annotated[str, "what a tick does while the last run goes on"]
    catchup: Annotated[str, "which late ticks are made up for"]
    origin: Annotated[str, "`code` or `operator`"]
    next_at: Annotated[
        datetime | None,
        "its next tick; null while it is paused, or was not computed yet",
        ListColumn("NEXT"),
    ]
    last_at: Annotated[
        datetime | None, "the tick of its last run", ListColumn("LAST", page="Last run")
    ]
    last_run_id: Annotated[UUID | None, "its last run"]
    last_status: Annotated[RunStatus | None, "how that does"]
    error: Annotated[str | None, "why its last tick started no run"]
    failed_at: Annotated[datetime | None, "when that was"]
    paused_at: Annotated[datetime | None, ListColumn("STATE")]
    paused_by: str | None
    changed_at: datetime
    changed_by: str | None

    @property
    @shown
    def when(self) -> Annotated[str, "its expression in words", ListColumn("WHEN")]:
        """Its expression in words; as it is, if it cannot be read."""
        return self.cron if expression_fault(self.cron) else in_words(self.cron, self.timezone)


def finding_of_schedules(found: list[ListedSchedule], now: datetime) -> Finding:
    """Whether all of them start their runs."""
    for each in found:
        if each.error:
            when = ago(each.failed_at or now, now)
            failed = f"{each.name} has started no run {when}: {each.error}"
            return warning(failed, "see `pgflowd schedules list`", "E327")
    paused = sum(each.paused_at is not None for each in found)
    text = counted(len(found), "schedule") if found else "none"
    return ok(f"{text}, {paused} of them paused" if paused else text)


@dataclass(frozen=True)
class Fired:
    """What became of a start by hand: a run of its own, or the one that has not ended."""

    run_id: UUID
    status: Annotated[
        str, "how the run does; `existing` for the run that has not ended, of a schedule that skips"
    ]

    @property
    def is_new(self) -> bool:
        return self.status != "existing"
