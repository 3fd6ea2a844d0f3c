"""
Runs, their steps and their attempts, as programs and screens see them.

A `Run` is read from the document of `get_run_with_states`. `RunDetails` adds the tasks of each
step, the failed attempts, what it waits for, signals that nobody got, and on request all attempts
and checkpoints that are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from pgflowd.core.documents import plain, versioned
from pgflowd.core.documents.families import FamilyMember
from pgflowd.core.documents.typed_outputs import TypedOutputs
from pgflowd.core.documents.undos import StepUndo
from pgflowd.core.documents.waits import ListedSignal, OpenTask, SavedCheckpoint
from pgflowd.core.output_stream import KeptLine
from pgflowd.core.progress import Progress
from pgflowd.core.statuses import Outcome, RunStatus, StepStatus


@dataclass(frozen=True)
class StepState:
    """One step of a run."""

    step_slug: str
    status: StepStatus
    output: Any
    error: str | None
    skip_reason: str | None
    initial_tasks: int | None  # None while a map waits for its array
    remaining_tasks: int | None
    remaining_deps: int
    created_at: datetime | None
    started_at: datetime | None
    completed_at: datetime | None
    failed_at: datetime | None
    skipped_at: datetime | None

    @property
    def ended_at(self) -> datetime | None:
        return self.completed_at or self.failed_at or self.skipped_at


@dataclass(frozen=True)
class Run(TypedOutputs):
    """One execution of a flow, as it was when it was read. Times are in UTC."""

    run_id: UUID
    flow_slug: str
    status: RunStatus
    input: Any
    output: Any
    error: str | None
    remaining_steps: int
    started_at: datetime | None
    completed_at: datetime | None
    failed_at: datetime | None
    cancelled_at: datetime | None = None
    cancelled_by: str | None = None
    cancel_reason: str | None = None
    paused_at: datetime | None = None
    paused_by: str | None = None
    pause_reason: str | None = None
    start_at: datetime | None = None  # what its start asked for
    expires_at: datetime | None = None
    expired_at: datetime | None = None
    labels: Mapping[str, str] | None = None
    title: str | None = None  # what its flow makes of the input
    singleton: str | None = None  # the key that one run at a time has
    created_by: str | None = None  # who asked for it
    blocked_by: Sequence[UUID] | None = None  # the runs that must end before it begins
    parent_run_id: UUID | None = None  # whose task has started it
    undo_of: UUID | None = None  # the run that this one undoes
    undo_run_id: UUID | None = None  # the run that undoes this one, or is to
    undo_wanted_at: datetime | None = None
    undo_by: str | None = None  # who asked for the undo; None: the run failed, or was cancelled
    undo_reason: str | None = None

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
    def ended_at(self) -> datetime | None:
        return self.completed_at or self.failed_at or self.cancelled_at or self.expired_at

    def to_json(self) -> dict[str, Any]:
        return plain({
            "run_id": self.run_id,
            "flow": self.flow_slug,
            "status": self.status,
            "input": self.input,
            "output": self.output,
            "error": self.error,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "cancelled_by": self.cancelled_by,
            "cancel_reason": self.cancel_reason,
            "paused_at": self.paused_at,
            "paused_by": self.paused_by,
            "pause_reason": self.pause_reason,
            "start_at": self.start_at,
            "expires_at": self.expires_at,
            "labels": self.labels,
            "title": self.title,
            "singleton": self.singleton,
            "created_by": self.created_by,
            "blocked_by": self.blocked_by and [str(other) for other in self.blocked_by],
            "parent_run_id": self.parent_run_id,
            "undo_of": self.undo_of,
            "undo_run_id": self.undo_run_id,
            "undo_by": self.undo_by,
            "undo_reason": self.undo_reason,
        })  # fmt: skip


@dataclass(frozen=True)
class RunWithStates(Run):
    """A run and its steps by slug."""

    steps: Mapping[str, StepState] = field(default_factory=dict)

    @property
    def _outputs(self) -> Mapping[str, Any]:
        done = StepStatus.COMPLETED
        return {slug: step.output for slug, step in self.steps.items() if step.status is done}


@dataclass(frozen=True)
class ListedRun:
    """A run in a list."""

    run_id: UUID
    flow_slug: str
    status: RunStatus
    started_at: datetime | None  # None: it has not begun
    ended_at: datetime | None
    steps: int
    steps_done: int
    error: str | None
    start_at: datetime | None = None
    labels: Mapping[str, str] | None = None
    share: float | None = None  # of its steps that is done, as far as it is known
    undo_of: UUID | None = None  # the run that this one undoes
    title: str | None = None  # what its flow makes of the input

    @property
    def has_ended(self) -> bool:
        return self.status.is_end

    def to_json(self) -> dict[str, Any]:
        return plain({
            "run_id": self.run_id,
            "flow": self.flow_slug,
            "title": self.title,
            "status": self.status,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "steps": self.steps,
            "steps_done": self.steps_done,
            "share": self.share,
            "error": self.error,
            "start_at": self.start_at,
            "labels": self.labels,
            "undo_of": self.undo_of,
        })  # fmt: skip


@dataclass(frozen=True)
class StepTasks:
    """A step of a run, and its tasks by status."""

    step_slug: str
    step_type: str
    deps: list[str]
    tasks: int
    queued: int
    running: int
    completed: int
    failed: int
    attempts: int  # the most of the tasks that are open, else of all
    max_attempts: int
    timeout_s: int
    running_since: datetime | None  # what a person does has no timeout
    next_at: datetime | None  # when the first queued task may be claimed, or a wait is over
    waiting: int = 0
    share: float | None = None  # how much of its tasks is done
    progress: Progress | None = None  # what a running task told last

    @property
    def only_waits(self) -> bool:
        """Whether each of its open tasks waits."""
        return self.waiting > 0 and not (self.queued or self.running)

    def to_json(self, state: StepState | None, undo: StepUndo | None = None) -> dict[str, Any]:
        """The step with its state in the run, and how far it is undone."""
        return plain({
            "step": self.step_slug,
            "type": self.step_type,
            "deps": self.deps,
            "status": state.status if state else StepStatus.CREATED,
            "output": state and state.output,
            "error": state and state.error,
            "skip_reason": state and state.skip_reason,
            "started_at": state and state.started_at,
            "ended_at": state and state.ended_at,
            "tasks": self.tasks,
            "queued": self.queued,
            "waiting": self.waiting,
            "running": self.running,
            "completed": self.completed,
            "failed": self.failed,
            "attempts": self.attempts,
            "max_attempts": self.max_attempts,
            "timeout_s": self.timeout_s,
            "next_at": self.next_at,
            "undo": undo and undo.to_json(),
            "share": self.share,
            "progress": self.progress and self.progress.to_json(),
        })  # fmt: skip


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

    step: str
    task: int
    token: int
    attempt: int
    outcome: Outcome | None  # None while it runs
    started_at: datetime
    ended_at: datetime | None
    error_type: str | None
    error: str | None
    traceback: str | None
    exit_code: int | None
    exit_signal: int | None
    cpu_s: float | None
    peak_kb: int | None
    worker_id: UUID
    progress: Progress | None = None  # what its handler told last
    output_lines: int | None = None  # how many lines of its output are kept

    def to_json(self) -> dict[str, Any]:
        return plain({**vars(self), "progress": self.progress and self.progress.to_json()})


@dataclass(frozen=True)
class AttemptOutput:
    """What is kept of the output of an attempt; of one whose worker has died nothing."""

    step_slug: str
    task_index: int
    token: int
    attempt: int
    outcome: Outcome
    started_at: datetime
    ended_at: datetime
    lines: Sequence[KeptLine] | None
    is_cut: bool

    def to_json(self) -> dict[str, Any]:
        return plain({
            "step": self.step_slug,
            "task": self.task_index,
            "token": self.token,
            "attempt": self.attempt,
            "outcome": self.outcome,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "lines": None if self.lines is None else [line.to_json() for line in self.lines],
            "cut": self.is_cut,
        })  # fmt: skip


@dataclass(frozen=True)
class RunDetails:
    """A run as it was at `now`, by the database's clock."""

    run: RunWithStates
    steps: list[StepTasks]
    failures: list[FailedAttempt]
    attempts: list[Attempt] | None  # None: not requested
    now: datetime
    waits: Sequence[OpenTask] = ()
    unused: Sequence[ListedSignal] = ()  # signals that nobody got
    checkpoints: Sequence[SavedCheckpoint] | None = None  # None: not requested, like the next
    family: Sequence[FamilyMember] | None = None
    undos: Mapping[str, StepUndo] = field(default_factory=dict)  # of steps, by their slugs
    undo: Run | None = None  # the run that undoes it, once it has begun
    trace_url: str | None = None  # None: the config names none
    has_undos: bool = False  # whether its flow says how to undo it; asked once it has ended

    def to_json(self) -> dict[str, Any]:
        steps = [
            step.to_json(self.run.steps.get(step.step_slug), self.undos.get(step.step_slug))
            for step in self.steps
        ]
        document = versioned({**self.run.to_json(), "steps": steps})
        document["waits"] = [task.to_json() for task in self.waits]
        document["unused_signals"] = [signal.to_json() for signal in self.unused]
        if self.attempts is not None:
            document["attempts"] = [attempt.to_json() for attempt in self.attempts]
        if self.checkpoints is not None:
            document["checkpoints"] = [each.to_json() for each in self.checkpoints]
        if self.family is not None:
            document["family"] = [member.to_json() for member in self.family]
        if self.trace_url is not None:
            document["trace_url"] = self.trace_url
        return document


@dataclass(frozen=True)
class TimelineEntry:
    """A change of a run, of a step or of a task, or what a handler printed or told."""

    event: str  # run:started, step:completed, task:failed, task:output, task:progress, …
    run_id: str
    flow: str
    at: datetime
    since_start_s: float
    step: str | None = None
    task: int | None = None
    tasks: int | None = None
    attempt: int | None = None
    max_attempts: int | None = None
    took_s: float | None = None
    output: Any = None
    error: str | None = None
    traceback: str | None = None
    next_at: datetime | None = None
    stream: str | None = None  # of a line that a handler printed: stdout, stderr, log
    level: str | None = None
    text: str | None = None  # of such a line, or what a task waits for
    ends_by: str | None = None  # the command that ends the wait
    progress: Progress | None = None  # what a task has told

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
        told = self.progress and self.progress.to_json()
        return versioned(plain({**vars(self), "progress": told}))
