"""The tasks of one step of a run, a page at a time, as programs and screens see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from pgflowd.core.documents import plain
from pgflowd.core.statuses import Outcome, TaskStatus
from pgflowd.core.text import between


@dataclass(frozen=True)
class StepTask:
    """A task and its last attempt that is kept; its fields are the keys of its document."""

    task: int
    status: TaskStatus
    attempts: int
    kind: str | None  # of the wait, like the next two
    name: str | None
    why: str | None
    since: datetime | None
    until: datetime | None  # the end of the wait, of the lease, or of the delay
    attempt: int | None  # None: none is kept, like all that follows
    outcome: Outcome | None  # None, too, while the attempt runs
    started_at: datetime | None
    ended_at: datetime | None
    error_type: str | None
    error: str | None
    worker: str | None

    @property
    def took_s(self) -> float | None:
        return between(self.started_at, self.ended_at)


@dataclass(frozen=True)
class StepTasksPage:
    """Some tasks of a step, in their order."""

    run_id: UUID
    step: str
    tasks: Sequence[StepTask]
    after: int | None  # the index after which the next page begins; None: this is the last one
    strip: StepStrip | None = None  # all tasks of the step; None: not requested

    @property
    def next(self) -> int | None:
        """Where the next page begins; None: this is the last one."""
        return self.after

    def to_json(self) -> dict[str, Any]:
        return plain({
            "run_id": self.run_id,
            "step": self.step,
            "tasks": [plain(vars(task)) for task in self.tasks],
            "after": self.after,
            "strip": self.strip and [cell.to_json() for cell in self.strip.cells],
        })  # fmt: skip


@dataclass(frozen=True)
class StripCell:
    """Neighbouring tasks of a map, counted by status."""

    first: int
    last: int
    counts: Mapping[TaskStatus, int]

    @property
    def worst(self) -> TaskStatus | None:
        """The status that matters most of those that its tasks have; None: it has no tasks."""
        return next((status for status in _WORST_FIRST if self.counts.get(status)), None)

    def to_json(self) -> dict[str, Any]:
        counts = {str(status): count for status, count in self.counts.items() if count}
        return {"first": self.first, "last": self.last, "counts": counts}


@dataclass(frozen=True)
class StepStrip:
    """All tasks of a map, in a few cells."""

    run_id: UUID
    step: str
    cells: Sequence[StripCell]

    def to_json(self) -> dict[str, Any]:
        cells = [cell.to_json() for cell in self.cells]
        return plain({"run_id": self.run_id, "step": self.step, "cells": cells})


_WORST_FIRST = (
    TaskStatus.FAILED, TaskStatus.QUARANTINED, TaskStatus.LAPSED, TaskStatus.STARTED,
    TaskStatus.LEASED, TaskStatus.PAUSED, TaskStatus.WAITING, TaskStatus.DELAYED, TaskStatus.READY,
    TaskStatus.QUEUED, TaskStatus.SKIPPED, TaskStatus.COMPLETED,
)  # fmt: skip
