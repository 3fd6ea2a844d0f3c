"""The tasks of one step of a run, a page at a time, as programs and screens see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated
from uuid import UUID

from pgflowd.core.documents import Hidden, Named, shown
from pgflowd.core.statuses import Outcome, TaskStatus
from pgflowd.core.text import between


@dataclass(frozen=True)
class StepTask:
    """A task and its last attempt that is kept; its fields are the keys of its document."""

    task: int
    status: TaskStatus
    attempts: int
    kind: Annotated[str | None, "of its wait"]
    name: Annotated[
        str | None, "of the signal, of what is needed, or of the limit that it waits for"
    ]
    why: Annotated[str | None, "more about its wait"]
    since: Annotated[datetime | None, "since when it is so"]
    until: Annotated[datetime | None, "the end of the wait, of the lease, or of the delay"]
    attempt: Annotated[int | None, "the last attempt that is kept"]
    outcome: Outcome | None  # None, too, while the attempt runs
    started_at: Annotated[datetime | None, "when that began"]
    ended_at: Annotated[datetime | None, "when that ended"]
    error_type: str | None
    error: str | None
    worker: Annotated[str | None, "the name of the worker, or of the person"]

    @property
    def took_s(self) -> float | None:
        return between(self.started_at, self.ended_at)


@dataclass(frozen=True)
class StepTasksPage:
    """
    Some tasks of a step, in their order. With `--status` it looks at 20,000 tasks, so a page may
    have few tasks, or none, and yet be followed by another.
    """

    run_id: UUID
    step: str
    tasks: Annotated[Sequence[StepTask], "the tasks in their order"]
    after: Annotated[
        int | None, "the index after which the next page begins; null if this is the last one"
    ]
    strip: Hidden[StepStrip | None] = None  # all tasks of the step; None: not requested

    @property
    def next(self) -> int | None:
        """Where the next page begins; None: this is the last one."""
        return self.after

    @property
    @shown
    def cells(
        self,
    ) -> Annotated[
        Sequence[StripCell] | None,
        Named("strip"),
        "all tasks of the step, in at most 200 cells of the same length",
    ]:
        return self.strip.cells if self.strip else None


@dataclass(frozen=True)
class StripCell:
    """Neighbouring tasks of a map, counted by status."""

    first: Annotated[int, "the first index of the cell"]
    last: Annotated[int, "the last one"]
    counts: Hidden[Mapping[TaskStatus, int]]

    @property
    @shown
    def found(
        self,
    ) -> Annotated[
        dict[str, int],
        Named("counts"),
        "how many tasks are `queued`, `waiting`, `started`, `completed`, `failed` and `skipped`,"
        " without those that are 0",
    ]:
        return {str(status): count for status, count in self.counts.items() if count}

    @property
    def worst(self) -> TaskStatus | None:
        """The status that matters most of those that its tasks have; None: it has no tasks."""
        return next((status for status in _WORST_FIRST if self.counts.get(status)), None)


@dataclass(frozen=True)
class StepStrip:
    """All tasks of a map, in a few cells."""

    run_id: UUID
    step: str
    cells: Sequence[StripCell]


_WORST_FIRST = (
    TaskStatus.FAILED, TaskStatus.QUARANTINED, TaskStatus.LAPSED, TaskStatus.STARTED,
    TaskStatus.LEASED, TaskStatus.PAUSED, TaskStatus.WAITING, TaskStatus.DELAYED, TaskStatus.READY,
    TaskStatus.QUEUED, TaskStatus.SKIPPED, TaskStatus.COMPLETED,
)  # fmt: skip
