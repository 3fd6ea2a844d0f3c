"""Schedules, as programs and screens see them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from pgflowd.core.documents import plain
from pgflowd.core.finding import Finding, ok, warning
from pgflowd.core.statuses import RunStatus
from pgflowd.core.text import ago, counted
from pgflowd.core.ticks import expression_fault, in_words


@dataclass(frozen=True)
class ListedSchedule:
    """A schedule, its next tick, and the last run that it has started."""

    name: str
    flow_slug: str
    cron: str
    timezone: str
    input: Any
    overlap: str
    catchup: str
    origin: str  # "code" or "operator"
    next_at: datetime | None  # of one that is paused, or was changed a moment ago, none
    last_at: datetime | None  # the tick of the last run
    last_run_id: UUID | None
    last_status: RunStatus | None
    error: str | None  # why its last tick started no run
    failed_at: datetime | None
    paused_at: datetime | None
    paused_by: str | None
    changed_at: datetime
    changed_by: str | None

    @property
    def when(self) -> str:
        """Its expression in words; as it is, if it cannot be read."""
        return self.cron if expression_fault(self.cron) else in_words(self.cron, self.timezone)

    def to_json(self) -> dict[str, Any]:
        return plain({
            "name": self.name,
            "flow": self.flow_slug,
            "when": self.when,
            "cron": self.cron,
            "timezone": self.timezone,
            "input": self.input,
            "overlap": self.overlap,
            "catchup": self.catchup,
            "origin": self.origin,
            "next_at": self.next_at,
            "last_at": self.last_at,
            "last_run_id": self.last_run_id,
            "last_status": self.last_status,
            "error": self.error,
            "failed_at": self.failed_at,
            "paused_at": self.paused_at,
            "paused_by": self.paused_by,
            "changed_at": self.changed_at,
            "changed_by": self.changed_by,
        })  # fmt: skip


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
    status: str

    @property
    def is_new(self) -> bool:
        return self.status != "existing"

    def to_json(self) -> dict[str, Any]:
        return plain(vars(self))
