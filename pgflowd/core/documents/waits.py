"""
Open tasks and what they wait for, tasks of people, signals and checkpoints, as programs and screens
see them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, NamedTuple
from uuid import UUID

from pgflowd.core.documents import (
    FlowSlug,
    Inline,
    ListColumn,
    Named,
    StepSlug,
    TaskIndex,
    TaskKey,
    Words,
    number,
    shown,
)
from pgflowd.core.failure import APPROVAL
from pgflowd.core.json import dumps
from pgflowd.core.metrics.definitions import is_number
from pgflowd.core.settings.values import in_words
from pgflowd.core.statuses import Outcome, TaskStatus
from pgflowd.core.text import brief, counted, short_id, who
from pgflowd.core.text import size as size_text
from pgflowd.core.waiting import WaitKind
from pgflowd.errors import Problem

# kinds of waits that no handler asks for
PAUSED = "paused"  # for the resume of the run
QUARANTINED = "quarantined"  # for somebody to decide


@dataclass(frozen=True)
class OpenTask:
    """A task that has not ended, and what it waits for."""

    run_id: UUID
    step_slug: StepSlug
    task_index: TaskIndex
    flow_slug: Annotated[FlowSlug, ListColumn("FLOW")]
    status: Annotated[TaskStatus, ListColumn("STATUS")]
    attempts: int
    kind: Annotated[
        str | None,
        "of its wait: `sleep`, `signal`, `runs`, `need`, `limit`, `paused`, `quarantined`",
    ]
    name: Annotated[str | None, "of the signal, of what is needed, or of the limit"]
    why: Annotated[
        str | None,
        "`approval`, which runs, what newer code is needed for, or the note of `ctx.hand_on`",
    ]
    since: Annotated[datetime, "since when it is so", ListColumn("SINCE")]
    until: Annotated[
        datetime | None, "the end of the wait, of the lease, or of the delay", ListColumn("UNTIL")
    ]
    is_unserved: Annotated[
        bool | None,
        Named("unserved"),
        "whether no living worker has what is needed; null for other kinds",
    ] = None
    worker: Annotated[
        str | None,
        "the name of the worker, or of the person, that has it",
        ListColumn("BY", 30, is_rare=True),
    ] = None
    title: Annotated[str | None, ListColumn("TITLE", 30, absent="", is_rare=True)] = (
        None  # of its run
    )

    @property
    def key(self) -> Annotated[TaskKey, ListColumn("TASK")]:
        return TaskKey(self.run_id, self.step_slug, self.task_index)

    @property
    def is_approval(self) -> bool:
        return self.why == APPROVAL

    @property
    def waits_for(self) -> Annotated[str, ListColumn("WAITS FOR")]:
        """In a few words; empty for a task that does not wait."""
        if self.kind == WaitKind.NEED:
            return f"{in_words(self.name or '')}{f': {self.why}' if self.why else ''}"
        if self.kind == WaitKind.LIMIT:
            return f"a place of {self.name}"
        if self.why:
            return self.why
        if self.kind == WaitKind.SIGNAL:
            return f"signal {self.name}"
        return "the resume of its run" if self.kind == PAUSED else self.kind or ""


@dataclass(frozen=True)
class ListedSignal:
    """A signal, and which task got it."""

    signal_id: Annotated[int, "its id"]
    run_id: Annotated[UUID, ListColumn("RUN")]
    name: Annotated[str, ListColumn("SIGNAL", 30)]
    payload: Annotated[
        Any, "what was sent with it", ListColumn("PAYLOAD", 60, absent="null", show=brief)
    ]
    dedup: Annotated[str | None, "the text by which the same signal counts once"]
    sent_by: Annotated[str | None, "who sent it"]
    sent_at: Annotated[datetime, ListColumn("SENT")]
    step_slug: Annotated[str | None, Named("step"), "the step that got it; null before"]
    task_index: Annotated[int | None, Named("task"), "the task that got it"]
    consumed_at: Annotated[datetime | None, "when it got it"]
    session_role: str | None  # that was connected; None: before it was kept

    @property
    def sender(self) -> Annotated[str, ListColumn("BY")]:
        """Who sent it, and by which role."""
        return who(self.sent_by, self.session_role)

    @property
    def receiver(self) -> Annotated[str, ListColumn("GIVEN TO")]:
        """The task that got it, within its run; empty if none did."""
        return "" if self.step_slug is None else f"{self.step_slug}#{self.task_index}"


@dataclass(frozen=True)
class SavedCheckpoint:
    """
    What a task has saved under a name. A wait that ended has one, too, such as
    `{"slept": true}` or `{"got": …}`.
    """

    step_slug: StepSlug
    task_index: TaskIndex
    name: Annotated[str, ListColumn("CHECKPOINT")]
    version: Annotated[int, "how often it was saved", number("VERSION")]
    saved_at: Annotated[datetime, "when it was saved", ListColumn("SAVED")]
    data: Annotated[Any, "its value", ListColumn("VALUE", 60, absent="null", show=brief)]

    @property
    def place(self) -> Annotated[str, ListColumn("TASK")]:
        """The task within its run."""
        return f"{self.step_slug}#{self.task_index}"

    @property
    @shown
    def size(self) -> Annotated[int, "of its value, in bytes", number("SIZE", show=size_text)]:
        """The bytes of its JSON."""
        return len(dumps(self.data).encode())


def counted_waits(numbers: Any, flow_slug: str) -> dict[str, Any]:
    """How many tasks of a flow wait, as the sweeper tells, and by kind; null if it does not."""
    if not isinstance(numbers, Mapping):
        return {"waiting": None, "waits": None}
    found = numbers.get(flow_slug)
    kinds = found.items() if isinstance(found, Mapping) else ()
    waits = {kind: count for kind, count in kinds if is_number(count)}
    return {"waiting": sum(waits.values()), "waits": waits}


class Signals(NamedTuple):
    """Without `--run` those of the newest 100,000."""

    signals: Annotated[Sequence[ListedSignal], "the newest first"]


@dataclass(frozen=True)
class HeldTask:
    """A task that is a person's until its lease is over."""

    run_id: UUID
    step_slug: StepSlug
    task_index: TaskIndex
    flow_slug: FlowSlug
    token: int
    attempt: int
    max_attempts: int
    lease_until: Annotated[datetime, "when its lease ends"]
    input: Annotated[Any, "the outputs of its deps, or the element of a map"]
    flow_input: Annotated[
        Any,
        Named("run"),
        "the input of the run; null if it is larger than 64 kB and the step is none of the first",
    ]

    @property
    def key(self) -> TaskKey:
        return TaskKey(self.run_id, self.step_slug, self.task_index)


class ReportedTask(NamedTuple):
    """What became of a task that somebody has reported, or whose wait has been ended."""

    key: Inline[TaskKey]
    result: Annotated[
        str,
        Words((TaskStatus.QUEUED, Outcome.COMPLETED, Outcome.FAILED, Outcome.LATE)),
        "`late`, with exit code 1: the run or step had ended before",
    ]


MOST = 100  # tasks are counted so far
CYCLE = "cycle"
CYCLE_NEXT = "cancel one of them: `pgflowd runs cancel RUN`; see docs/guides/child-runs.md"


class Undecided(NamedTuple):
    """
    A flow that is paused; its tasks in quarantine, or that need what no living worker has; or runs
    that wait for each other.
    """

    flow_slug: str
    kind: str
    name: (
        str | None
    )  # what they need; who has paused it, and why; for which run the first one waits
    run_id: str | None  # of the first
    tasks: int


def problem_of(one: Undecided) -> Problem:
    """The problem, and what to do."""
    if one.kind == PAUSED:
        text = f"flow {one.flow_slug} is paused by {one.name}; none of its tasks begins"
        next = f"`pgflowd flows resume {one.flow_slug}` lets it go on"
        return Problem("W330", text, "database", next)
    if one.kind == CYCLE:
        more = f"; {one.tasks} runs wait so" if one.tasks > 1 else ""
        text = (
            f"run {short_id(str(one.run_id))} of {one.flow_slug} waits for run"
            f" {short_id(str(one.name))}, which waits for it{more}"
        )
        return Problem("W332", text, "database", CYCLE_NEXT)
    tasks = f"{one.flow_slug}: {counted(one.tasks, 'task')}"
    if one.tasks >= MOST:
        tasks = f"{one.flow_slug}: {MOST} tasks or more"
    first = f"the first is of run {short_id(str(one.run_id))}"
    if one.kind == WaitKind.NEED:
        wait = "waits" if one.tasks == 1 else "wait"
        text = f"{tasks} {wait} for a worker with {one.name}, and none that lives has it; {first}"
        next = "give it to a worker ([worker] caps), or do them by hand: `pgflowd tasks claim`"
        return Problem("W328", text, "database", next)
    text = f"{tasks} in quarantine; {first}"
    next = "`pgflowd stalled list` shows them; `stalled requeue` or `stalled fail` decides"
    return Problem("W329", text, "database", next)
