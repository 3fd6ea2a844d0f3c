"""
Parts of a run, as programs and screens see them: the tasks of a step, a page at a time; how far the
undo of a step is; the runs that it has started, and so on; parts of values that may be large; open
tasks and what they wait for, signals and checkpoints; its events, the actions of people, and dead
letters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, NamedTuple
from uuid import UUID

from pgflowd.core.documents import (
    FlowSlug,
    Hidden,
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
from pgflowd.core.settings.values import in_words
from pgflowd.core.statuses import Outcome, RunStatus, TaskStatus
from pgflowd.core.text import between, brief, counted, short_id, who
from pgflowd.core.text import size as size_text
from pgflowd.core.waiting import WaitKind
from pgflowd.errors import Problem


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
    # of its run
    title: Annotated[str | None, ListColumn("TITLE", 30, absent="", is_rare=True)] = None

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
    # what they need; who has paused it, and why; for which run the first one waits
    name: str | None
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


_IDS = ("action_id", "signal_id", "run_id", "name")  # in the detail of an event


@dataclass(frozen=True)
class RunEvent:
    """
    Something that happened in a run.

    `event` has a kind and a word: `run:started`, `step:completed`, `task:failed`, `child:started`,
    `signal:received`, `action:cancel`. `actor` is a person or program that did it, if one did.
    """

    at: datetime
    event: Annotated[str, "what happened"]
    step: str | None
    task: int | None
    token: int | None  # of the attempt that began or ended
    actor: str | None
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return self.event.partition(":")[0]

    @property
    def word(self) -> str:
        """What happened: a status, an outcome, or what somebody did."""
        return self.event.partition(":")[2]

    @property
    def who(self) -> str:
        """Who did it, and by which role; empty if nobody did."""
        return who(self.actor, self.detail.get("session_role")) if self.actor else ""

    @property
    def key(self) -> tuple[Any, ...]:
        """What no other event of its run has: a follower knows it by this."""
        ids = (self.detail.get(name) for name in _IDS)
        return (self.event, self.at, self.step, self.task, self.token, *ids)


@dataclass(frozen=True)
class EventPage:
    """The newest events of a run, or of those before a moment, in the order of time."""

    events: Annotated[
        Sequence[RunEvent],
        "what happened in the run, in the order of time; of very many events the newest",
    ]
    before: Annotated[datetime | None, "null, or the moment with which `--before` shows older ones"]


def is_over(events: Sequence[RunEvent]) -> bool:
    """Whether these events end the run: one that is undone goes on."""
    words = [event.word for event in events if event.kind == "run" and event.word != "planned"]
    return bool(words) and RunStatus(words[-1]).is_end


@dataclass(frozen=True)
class PersonAction:
    """What a person or client did; its fields are the keys of its document."""

    action_id: int
    at: datetime
    actor: str
    action: str  # the verb: cancel, retry, approve, …
    flow: Annotated[str | None, "the slug of the flow, if it was about one"]
    run_id: Annotated[UUID | None, "the id of the run, if it was about one"]
    step: Annotated[str | None, "the slug of the step, if it was about one"]
    task: Annotated[int | None, "the index of the task, if it was about one"]
    reason: str | None
    data: Annotated[Mapping[str, Any] | None, "more about it, as a JSON object"]
    session_role: str | None  # the role that was connected; None: before it was kept

    @property
    def who(self) -> str:
        return who(self.actor, self.session_role)

    @property
    def key(self) -> int:
        return self.action_id


@dataclass(frozen=True)
class DeadLetter:
    """A task that has failed for good, and its run with it; with its last attempt."""

    run_id: UUID
    step: str
    task: int
    flow: Annotated[str, ListColumn("FLOW")]
    attempts: Annotated[int, number("ATTEMPTS")]
    token: int | None  # None: the attempt was not kept, like the next two
    outcome: Annotated[str | None, "of the last attempt"]
    error_type: Annotated[str | None, "of the last attempt"]
    error: Annotated[str | None, "of the last attempt", ListColumn("ERROR", absent="")]
    failed_at: Annotated[datetime, ListColumn("FAILED")]

    @property
    def key(self) -> Annotated[TaskKey, ListColumn("TASK")]:
        return TaskKey(self.run_id, self.step, self.task)


class Actions(NamedTuple):
    """With `--follow` one action in each line, the oldest first."""

    actions: Annotated[Sequence[PersonAction], "the newest first"]
