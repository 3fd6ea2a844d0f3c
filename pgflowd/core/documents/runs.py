"""
Runs, their steps and their attempts, as programs and screens see them.

A `Run` is read from the document of `get_run_with_states`. `RunDetails` adds the tasks of each
step, the failed attempts, what it waits for, signals that nobody got, and on request all attempts
and checkpoints that are kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple, TypedDict, TypeVar, cast
from uuid import UUID

from pgflowd.core.documents import (
    FlowSlug,
    Format,
    Hidden,
    Inline,
    ListColumn,
    Named,
    Presence,
    StepSlug,
    TaskIndex,
    number,
    shown,
    versioned,
)
from pgflowd.core.documents.run_tasks import (
    FamilyMember,
    ListedSignal,
    OpenTask,
    SavedCheckpoint,
    StepUndo,
)
from pgflowd.core.output_stream import KeptLine
from pgflowd.core.progress import Progress
from pgflowd.core.statuses import Outcome, RunStatus, StepStatus
from pgflowd.core.text import between, did_you_mean
from pgflowd.core.typed.codec import read_as
from pgflowd.errors import WrongState

T = TypeVar("T")


class TypedOutputs(ABC):
    """A run whose outputs can be read as types."""

    @property
    @abstractmethod
    def _outputs(self) -> Mapping[str, Any]:
        """By steps, as JSON."""

    def output_as(self, step: str, as_type: type[T]) -> T:
        """
        The output of a step, decoded as this type; without its steps a run has those of leaves.

        Raises TypeMismatch, and WrongState if there is no such output.
        """
        outputs = self._outputs
        if step not in outputs:
            known = f"it has those of {', '.join(outputs)}" if outputs else "it has none"
            raise WrongState(
                f"the run has no output of step '{step}'", next=did_you_mean(step, outputs) or known
            )
        return cast(T, read_as(outputs[step], as_type, step))


@dataclass(frozen=True)
class StepState:
    """One step of a run."""

    step_slug: StepSlug
    status: StepStatus
    output: Annotated[Any, "its output; of a map a list"] = None
    error: str | None = None
    skip_reason: Annotated[str | None, "why it was skipped"] = None
    initial_tasks: Hidden[int | None] = None  # None while a map waits for its array
    remaining_tasks: Hidden[int | None] = None
    remaining_deps: Hidden[int] = 0
    created_at: Hidden[datetime | None] = None
    started_at: Annotated[datetime | None, "when it started; null before"] = None
    completed_at: Hidden[datetime | None] = None
    failed_at: Hidden[datetime | None] = None
    skipped_at: Hidden[datetime | None] = None

    @property
    @shown
    def ended_at(self) -> datetime | None:
        return self.completed_at or self.failed_at or self.skipped_at


@dataclass(frozen=True)
class Run(TypedOutputs):
    """One execution of a flow, as it was when it was read. Times are in UTC."""

    run_id: UUID
    flow_slug: FlowSlug
    status: RunStatus
    input: Any
    output: Annotated[Any, "its output, by leaf steps; null unless it is completed"]
    error: str | None
    remaining_steps: Hidden[int]
    started_at: Annotated[datetime | None, "when it began; null before"]
    completed_at: Hidden[datetime | None]
    failed_at: Hidden[datetime | None]
    cancelled_at: Hidden[datetime | None] = None
    cancelled_by: Annotated[str | None, "who cancelled it"] = None
    cancel_reason: str | None = None
    paused_at: datetime | None = None
    paused_by: str | None = None
    pause_reason: str | None = None
    start_at: Annotated[datetime | None, "when it is to begin"] = None
    expires_at: Annotated[datetime | None, "when it ends at the latest"] = None
    expired_at: Hidden[datetime | None] = None
    labels: Annotated[Mapping[str, str] | None, "the labels of its start"] = None
    title: Annotated[str | None, "what its flow makes of the input, for people"] = None
    singleton: Annotated[str | None, "the key that only one run at a time has"] = None
    created_by: Annotated[str | None, "who asked for it, if its start had wishes"] = None
    blocked_by: Annotated[Sequence[UUID] | None, "the runs that must end before it begins"] = None
    parent_run_id: Annotated[UUID | None, "the run whose task has started it"] = None
    undo_of: Annotated[UUID | None, "the run that this one undoes"] = None
    undo_run_id: Annotated[UUID | None, "the run that undoes this one, or did"] = None
    undo_wanted_at: Hidden[datetime | None] = None
    undo_by: Annotated[
        str | None, "who asked for that; null if the run failed or was cancelled"
    ] = None
    undo_reason: Annotated[str | None, "why it is undone"] = None

    @property
    def _outputs(self) -> Mapping[str, Any]:
        return self.output or {}

    @property
    def has_ended(self) -> bool:
        return self.status.is_end

    @property
    def status_before_undo(self) -> RunStatus:
        """How it had ended, if it is being, or was, undone; else its status."""
        if self.undo_wanted_at is None:
            return self.status
        if self.expired_at or self.cancelled_at:
            return RunStatus.EXPIRED if self.expired_at else RunStatus.CANCELLED
        return RunStatus.COMPLETED if self.failed_at is None else RunStatus.FAILED

    @property
    @shown
    def ended_at(self) -> datetime | None:
        return self.completed_at or self.failed_at or self.cancelled_at or self.expired_at


@dataclass(frozen=True)
class RunWithStates(Run):
    """A run and its steps by slug."""

    steps: Hidden[Mapping[str, StepState]] = field(default_factory=dict)

    @property
    def _outputs(self) -> Mapping[str, Any]:
        done = StepStatus.COMPLETED
        return {slug: step.output for slug, step in self.steps.items() if step.status is done}


class Runs(TypedDict):
    """The runs that were named or chosen, as they are now; errors of others are printed, too."""

    runs: Annotated[Sequence[Run], "those that did not refuse"]


@dataclass(frozen=True)
class ListedRun:
    """A run in a list."""

    run_id: Annotated[UUID, ListColumn("RUN")]
    flow_slug: Annotated[FlowSlug, ListColumn("FLOW")]
    status: Annotated[RunStatus, ListColumn("STATUS")]
    started_at: Annotated[datetime | None, "when it began; null before", ListColumn("STARTED")]
    ended_at: datetime | None
    steps: int
    steps_done: Annotated[int, "how many of them are completed or skipped"]
    error: Annotated[str | None, ListColumn("ERROR", 60, absent="")]
    start_at: Annotated[datetime | None, "when it is to begin"] = None
    labels: Annotated[Mapping[str, str] | None, "the labels of its start"] = None
    share: Annotated[float | None, "how much of its steps is done, from 0 to 1"] = None
    undo_of: Annotated[UUID | None, "the run that this one undoes"] = None
    # what its flow makes of the input
    title: Annotated[str | None, ListColumn("TITLE", 30, absent="", is_rare=True)] = None

    def took_s(self, now: datetime) -> Annotated[float | None, number("TOOK", absent="")]:
        """How long it took, or takes until now; None before it began."""
        return between(self.started_at, self.ended_at or now)

    @property
    def steps_text(self) -> Annotated[str, number("STEPS")]:
        """How many of its steps are done, such as `3/5`."""
        return f"{self.steps_done}/{self.steps}"

    @property
    def steps_share(self) -> float:
        """The share of its steps that is done; those that are under way do not count."""
        return self.steps_done / (self.steps or 1)

    @property
    def has_ended(self) -> bool:
        return self.status.is_end


@dataclass(frozen=True)
class StepTasks:
    """A step of a run, and its tasks by status."""

    step_slug: StepSlug
    step_type: Annotated[str, Named("type"), "`single` or `map`"]
    deps: Annotated[list[str], "the slugs of the steps that it depends on"]
    tasks: Annotated[int, "how many tasks it has"]
    queued: int
    running: int
    completed: Annotated[int, "how many tasks are completed"]
    failed: Annotated[int, "how many tasks have failed"]
    attempts: Annotated[int, "the most attempts of any open task, else of any"]
    max_attempts: int
    timeout_s: Annotated[int, "how long an attempt may take"]
    running_since: Hidden[datetime | None]  # what a person does has no timeout
    next_at: Annotated[
        datetime | None,
        "when the first queued task may be claimed, or the first wait is over at the latest",
    ]
    waiting: Annotated[int, "how many tasks wait"] = 0
    share: Annotated[float | None, "how much of its tasks is done, from 0 to 1"] = None
    progress: Annotated[Progress | None, "what a running task has told last"] = None

    @property
    def only_waits(self) -> bool:
        """Whether each of its open tasks waits."""
        return self.waiting > 0 and not (self.queued or self.running)


@dataclass(frozen=True)
class TaskProgress:
    """What a running task of a run has told of its progress."""

    step_slug: str
    task_index: int
    attempt: int
    progress: Progress


@dataclass(frozen=True)
class FailedAttempt:
    """An attempt that ended without an output."""

    step_slug: str
    task_index: int
    token: int
    attempt: int
    max_attempts: int
    outcome: Outcome
    error_type: str | None
    error: str | None
    traceback: str | None
    started_at: datetime
    ended_at: datetime
    next_at: datetime | None
    output_lines: int | None = None  # how many lines of its output are kept


@dataclass(frozen=True)
class Attempt:
    """One attempt of a task; its fields are the keys of its document."""

    step: Annotated[str, ListColumn("STEP")]
    task: Annotated[int, number("TASK")]
    token: int
    attempt: Annotated[int, number("ATTEMPT")]
    outcome: Annotated[Outcome | None, ListColumn("OUTCOME")]  # None while it runs
    started_at: Annotated[datetime, ListColumn("STARTED")]
    ended_at: datetime | None
    error_type: str | None
    error: Annotated[str | None, ListColumn("ERROR", 60, absent="")]
    traceback: Annotated[str | None, "of the exception"]
    exit_code: Annotated[int | None, "of its process, if that ended"]
    exit_signal: Annotated[int | None, "the Unix signal that ended its process"]
    cpu_s: Annotated[float | None, "the processor time that it took"]
    peak_kb: Annotated[int | None, "the memory that it took at most"]
    worker_id: UUID
    progress: Annotated[Progress | None, "what it has told last"] = None
    output_lines: Annotated[int | None, "how many lines of its output are kept"] = None

    def took_s(self, now: datetime) -> Annotated[float | None, number("TOOK")]:
        """How long it took, or takes until now."""
        return between(self.started_at, self.ended_at or now)


@dataclass(frozen=True)
class AttemptOutput:
    """What is kept of the output of an attempt; of one whose worker has died nothing."""

    step_slug: StepSlug
    task_index: TaskIndex
    token: int
    attempt: int
    outcome: Outcome
    started_at: datetime
    ended_at: datetime
    lines: Annotated[
        Sequence[KeptLine] | None,
        "what it printed and logged; null if its worker has died, and the output with it",
    ]
    is_cut: Annotated[bool, Named("cut"), "whether earlier lines are not kept"]


class RunStep(NamedTuple):
    """A step of a run: its tasks, and its state."""

    tasks: Inline[StepTasks]
    state: Inline[StepState]
    undo: Annotated[
        StepUndo | None, "of a step of which something is, or was, to be undone; else null"
    ]


@dataclass(frozen=True)
class RunDetails:
    """
    A run as it was when it was read. `--attempts`, `--checkpoints` and `--tree` add the keys of
    these names; `--input` and `--output` print the bare value alone.
    """

    run: Inline[RunWithStates]
    steps: Hidden[list[StepTasks]]
    failures: Hidden[list[FailedAttempt]]
    attempts: Annotated[
        list[Attempt] | None, Presence.OPTIONAL, "with `--attempts`: all attempts, the oldest first"
    ]
    now: Hidden[datetime]  # by the clock of the database
    waits: Annotated[Sequence[OpenTask], "its tasks that wait"] = ()
    unused: Annotated[
        Sequence[ListedSignal], Named("unused_signals"), "signals that no task has got"
    ] = ()
    checkpoints: Annotated[
        Sequence[SavedCheckpoint] | None,
        Presence.OPTIONAL,
        "with `--checkpoints`: what its tasks have saved",
    ] = None
    family: Annotated[
        Sequence[FamilyMember] | None,
        Presence.OPTIONAL,
        "with `--tree`: the runs that it belongs to by who has started whom, each after its parent,"
        " at most 1,000",
    ] = None
    undos: Hidden[Mapping[str, StepUndo]] = field(default_factory=dict)  # of steps, by their slugs
    undo: Hidden[Run | None] = None  # the run that undoes it, once it has begun
    trace_url: Annotated[
        str | None,
        Presence.OPTIONAL,
        "the page of its trace; only if `[telemetry] trace_url` is set",
    ] = None
    has_undos: Hidden[bool] = False  # whether its flow says how to undo it; asked once it has ended

    @property
    @shown
    def run_steps(
        self,
    ) -> Annotated[list[RunStep], Named("steps"), "its steps, in topological order"]:
        """Its steps with their states; one that the run does not know was not begun."""
        return [
            RunStep(
                step,
                self.run.steps.get(step.step_slug) or StepState(step.step_slug, StepStatus.CREATED),
                self.undos.get(step.step_slug),
            )
            for step in self.steps
        ]


@dataclass(frozen=True)
class TimelineEntry:
    """
    A change of a run, of a step or of a task, or what a handler printed or told; one in each line.

    Output of handlers is shown from the moment on which a command follows the run, or a heartbeat
    later where daemons receive no notifications. It comes with `handler_output = "capture"` and
    without the values that `[logging] redact` hides; of too much output the rest is counted.
    """

    event: Annotated[
        str,
        "`run:…`: the run `started`, `completed`, `failed`, was `cancelled`, `expired`, its undo"
        " has begun (`undoing`), it is `undone`, or `undo_failed`; `undo:undone`,"
        " `undo:undo_failed`: of a step all is undone, or something is not; `step:…`: a step"
        " `started`, `completed`, `failed`, was `skipped`; `task:…`: an attempt `failed`,"
        " `timed_out`, `crashed`, `stalled`, was `released`; `task:waiting`: a task waits from `at`"
        " on; `task:progress`: it has told how far it is; `task:output`: a line that a handler"
        " printed or logged",
    ]
    run_id: Annotated[str, Format("uuid")]
    flow: str
    at: datetime
    since_start_s: Annotated[float, "since the beginning of the run, or of its undo"]
    step: str | None = None
    task: int | None = None
    tasks: Annotated[int | None, "of a step, or of an undo: how many tasks"] = None
    attempt: int | None = None
    max_attempts: int | None = None
    took_s: Annotated[float | None, "how long it took"] = None
    output: Annotated[Any, "of what completed"] = None
    error: str | None = None
    traceback: Annotated[str | None, "of an attempt"] = None
    next_at: Annotated[
        datetime | None, "when the task may be tried again, or its wait is over at the latest"
    ] = None
    stream: Annotated[
        str | None, "of a line: `stdout`, `stderr`, or `log` for `ctx.log` and `logging`"
    ] = None
    level: Annotated[str | None, "of a line that was logged"] = None
    text: Annotated[str | None, "the line; of a wait, what for"] = None
    ends_by: Annotated[str | None, "the command that ends the wait"] = None
    progress: Annotated[Progress | None, "of `task:progress`: what was told"] = None

    @property
    def key(self) -> tuple[Any, ...]:
        """The fields that no other entry of its run has."""
        return (self.event, self.step, self.task, self.attempt, self.at)

    @property
    def is_end(self) -> bool:
        """Whether it is the end of the run."""
        kind, _, status = self.event.partition(":")
        return kind == "run" and RunStatus(status).is_end

    def to_json(self) -> dict[str, Any]:
        """The entry as `pgflowd runs follow --json` prints it."""
        return versioned(self)


MAX_COUNTED = 1000  # of what a list finds; one more stands for any number above


class PageKey(NamedTuple):
    """The run behind which a page begins: when it began, or was asked for, and its id."""

    at: datetime
    run_id: UUID

    @property
    def text(self) -> str:
        return f"{self.at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}_{self.run_id}"

    @classmethod
    def read(cls, text: str) -> PageKey:
        """The key that has this text. Another text is a ValueError."""
        moment, _, run_id = text.partition("_")
        at = datetime.strptime(moment, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
        return cls(at, UUID(run_id))


@dataclass(frozen=True)
class RunCount:
    """How many runs fit; at most one more than `MAX_COUNTED`."""

    found: int
    seen: int  # how many were examined for it
    searched_to: datetime | None  # it has counted no older ones; None: it has counted all


@dataclass(frozen=True)
class RunPage:
    """
    Some runs of a list.

    With `--status` it looks at the newest 100,000 runs of the flow and time that are asked for, as
    does a RUN that is given by its last digits. With `--status waiting` or `quarantined` alone it
    looks at the runs of all waits instead, however old they are, if there are at most 2,000.
    `--text` is sought in the error and in the labels, whatever the case, and as the first or last
    digits of the id; a whole id is found however old the run is.
    """

    runs: Annotated[Sequence[ListedRun], "the newest runs, the newest first"]
    seen: Annotated[int, "how many runs were examined"]
    next: Hidden[PageKey | None]  # behind which the next page begins; None: this is the last one
    count: Hidden[RunCount | None] = None  # None: not requested

    @property
    @shown
    def searched_to(
        self,
    ) -> Annotated[datetime | None, "when the oldest of these began; null if none is left"]:
        """No older run was examined; None: all were."""
        return self.next and self.next.at

    @property
    @shown
    def after(
        self,
    ) -> Annotated[str | None, Named("next"), "what `--after` takes to show the page behind this"]:
        return self.next and self.next.text

    @property
    @shown
    def found(self) -> Annotated[int | None, "how many runs fit, 1,001 for more than a thousand"]:
        return self.count.found if self.count else None

    @property
    @shown
    def found_to(
        self,
    ) -> Annotated[
        datetime | None, "back to when they were counted among the newest 20,000; null if all were"
    ]:
        return self.count.searched_to if self.count else None
