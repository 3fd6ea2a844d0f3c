"""
Parts of a run, as programs and screens see them: the tasks of a step, a page at a time; how far the
undo of a step is; the runs that it has started, and so on; parts of values that may be large.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pgflowd.core.documents import FlowSlug, Hidden, ListColumn, Named, number, shown
from pgflowd.core.statuses import Outcome, RunStatus, TaskStatus
from pgflowd.core.text import between


@dataclass(frozen=True)
class StepTask:
    """A task and its last attempt that is kept; its fields are the keys of its document."""

    task: Annotated[int, ListColumn("TASK", show="#{}".format)]
    status: Annotated[TaskStatus, ListColumn("STATUS")]
    attempts: Annotated[int, number("ATTEMPTS")]
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
    error: Annotated[str | None, ListColumn("ERROR", 200)]
    worker: Annotated[
        str | None, "the name of the worker, or of the person", ListColumn("WORKER", 30)
    ]

    @property
    def took_s(self) -> Annotated[float | None, number("TOOK")]:
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
    strip: Annotated[
        Sequence[StripCell] | None, "all tasks of the step, in at most 200 cells of the same length"
    ] = None

    @property
    def next(self) -> int | None:
        """Where the next page begins; None: this is the last one."""
        return self.after


@dataclass(frozen=True)
class StripCell:
    """Neighbouring tasks of a map, counted by status."""

    first: Annotated[int, "the first index of the cell"]
    last: Annotated[int, "the last one"]
    counts: Annotated[
        Mapping[TaskStatus, int],
        "how many tasks are `queued`, `waiting`, `started`, `completed`, `failed` and `skipped`,"
        " without those that are 0",
    ]

    @property
    def worst(self) -> TaskStatus | None:
        """The status that matters most of those that its tasks have; None: it has no tasks."""
        return next((status for status in _WORST_FIRST if self.counts.get(status)), None)


_WORST_FIRST = (
    TaskStatus.FAILED, TaskStatus.QUARANTINED, TaskStatus.LAPSED, TaskStatus.STARTED,
    TaskStatus.LEASED, TaskStatus.PAUSED, TaskStatus.WAITING, TaskStatus.DELAYED, TaskStatus.READY,
    TaskStatus.QUEUED, TaskStatus.SKIPPED, TaskStatus.COMPLETED,
)  # fmt: skip


MAX_FAMILY = 1000  # runs that are read


@dataclass(frozen=True)
class FamilyMember:
    """A run of a family, and the task that has started it."""

    run_id: UUID
    parent_run_id: Annotated[UUID | None, "the run whose task has started it"]
    parent_step: Annotated[str | None, "the step of that task"]
    parent_index: Annotated[int | None, Named("parent_task")]
    depth: Hidden[int]
    flow_slug: FlowSlug
    status: RunStatus
    started_at: Annotated[datetime | None, "when it began; null before"]
    ended_at: datetime | None


@dataclass(frozen=True)
class Branch:
    """A member at its place in the tree."""

    member: FamilyMember
    bars: tuple[bool, ...]  # for each depth above: whether a line goes on there
    is_last: bool  # of its parent's children


def branches_of(family: Sequence[FamilyMember]) -> list[Branch]:
    """The members in the order of a tree: each run, then its children with all below them."""
    below: dict[UUID | None, list[FamilyMember]] = {}
    for member in family:
        below.setdefault(member.parent_run_id, []).append(member)
    branches: list[Branch] = []
    pending = [Branch(member, (), is_last=True) for member in below.get(None, [])]
    while pending:
        branch = pending.pop()
        branches.append(branch)
        children = below.get(branch.member.run_id, [])
        bars = (*branch.bars, not branch.is_last) if branch.member.depth else ()
        pending += [Branch(each, bars, each is children[-1]) for each in reversed(children)]
    return branches


@dataclass(frozen=True)
class StepUndo:
    """A step of which something is, or was, to be undone: its tasks, as the last undo left each."""

    step_slug: Hidden[str]
    tasks: Annotated[int, "how many tasks are to be undone"]
    undone: Annotated[int, "how many of them are undone"]
    failed: Annotated[int, "how many could not be undone"]
    open: Annotated[int, "how many are still to be undone"]
    error: Annotated[str | None, "of one that could not be undone"]

    @property
    def text(self) -> str:
        """How far it is, in few words."""
        of = f"{self.undone} of {self.tasks} " if self.tasks > 1 else ""
        if self.failed:
            return f"{of}undone, {self.failed} failed" if of else "undo failed"
        return f"{of if self.undone < self.tasks else ''}{'undoing' if self.open else 'undone'}"


@dataclass(frozen=True)
class ValueMember:
    """A member of an object or array; its fields are the keys of its document."""

    name: Annotated[str, "its key or index"]
    type: Annotated[str, "its type, as `jsonb_typeof` has it"]
    length: Annotated[int | None, "how many members or characters it has"]
    is_whole: Annotated[bool, Named("whole"), "whether `value` is all of it"]
    value: Annotated[Any, "of a text that is too long its beginning; null for what has members"]


@dataclass(frozen=True)
class ValuePart:
    """What is at a path of an input or output, from a member or character on."""

    path: Annotated[
        Sequence[str], "the keys and indexes that lead to it; empty for the whole value"
    ]
    start: Annotated[int, "at which member or character it begins"]
    type: Annotated[str, "its type, as `jsonb_typeof` has it"]
    length: Annotated[int | None, "how many members or characters it has"]
    is_whole: Annotated[bool, Named("whole"), "whether this is all of it"]
    value: Annotated[Any, "the value; null for an object or array, which has members"]
    members: Annotated[Sequence[ValueMember], "of an object or array"]

    @property
    @shown
    def next(
        self,
    ) -> Annotated[int | None, "where the next part begins; null if this is the last one"]:
        """Where the next part begins; None: this is the last one."""
        shown = len(self.value) if self.type == "string" else len(self.members)
        end = self.start + shown
        return end if shown and self.length is not None and end < self.length else None
