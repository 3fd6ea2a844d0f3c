"""
Events: what has happened, as the engine of a worker is informed of it. The messages of the
supervisor, such as Wake and Drain, are events, too (`core.messages`).

`chance` is a number from 0 to 1, drawn where the event was seen, for delays with jitter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pgflowd.core.failure import DatabaseFailure
from pgflowd.core.messages import Message
from pgflowd.core.output_stream import KeptOutput
from pgflowd.core.statuses import RunStatus, StepStatus
from pgflowd.core.worker.state import GOOD_STANDING, ConnectionName, FetchRequest, Standing
from pgflowd.core.worker.task import Task, TaskReport, Word


class Verdict(Word):
    """What the database made of a report."""

    COMPLETED = "completed"
    QUEUED = "queued"  # the task will be tried again
    FAILED = "failed"
    REPEATED = "repeated"  # this report was recorded before
    LATE = "late"  # the run or step had ended
    LOST = "lost"  # another worker has the task
    ERROR = "error"


class LeaseVerdict(Word):
    """What the database says of a lease that is to be renewed."""

    OK = "ok"
    CANCEL = "cancel"  # run or step has ended
    LOST = "lost"  # another worker has the task


class WorkerEvent:
    """What has happened."""

    __slots__ = ()


@dataclass(slots=True)
class Tick(WorkerEvent):
    """Time has passed."""


@dataclass(slots=True)
class Connected(WorkerEvent):
    connection: ConnectionName


@dataclass(slots=True)
class ConnectionLost(WorkerEvent):
    """A connection could not be made or a call on it failed; it is closed."""

    connection: ConnectionName
    failure: DatabaseFailure
    text: str
    chance: float = 0.5
    sqlstate: str | None = None


@dataclass(slots=True)
class ReportAnswer:
    """The database's verdict on one report, and what the report made of the run, if it ended."""

    verdict: Verdict
    sqlstate: str | None = None
    message: str | None = None
    run_status: RunStatus | None = None


@dataclass(slots=True)
class RunChange:
    """A run, or a step of it, was started, completed, failed or skipped by a report."""

    run_id: str
    step: str | None  # None: the run
    status: RunStatus | StepStatus
    took_s: float | None = None
    error: str | None = None


@dataclass(slots=True)
class ReportAndClaimDone(WorkerEvent):
    """An answer for each report, the claimed tasks, and the changes of runs that were wanted.

    `is_armed_anew`: the doorbell was not up before. `writers`: open transactions that may have
    missed it.
    """

    answers: tuple[ReportAnswer, ...]
    tasks: tuple[Task, ...]
    changes: tuple[RunChange, ...] = ()
    chance: float = 0.5
    is_armed_anew: bool = False
    writers: tuple[str, ...] = ()


@dataclass(slots=True)
class ForeignMessagesArchived(WorkerEvent):
    """Messages that belong to no open task were archived."""

    count: int


@dataclass(slots=True)
class TaskNotStarted(WorkerEvent):
    """A claim could not start a task, and has recorded a failure of it."""

    report: TaskReport
    answer: ReportAnswer


@dataclass(slots=True)
class NextDueRead(WorkerEvent):
    """When the next hidden message becomes visible (None: there is none), and how many are."""

    in_s: float | None
    visible: int = 0


@dataclass(slots=True)
class RunCancelled:
    """A run of which the worker has a task was cancelled."""

    run_id: str
    by: str | None
    why: str | None


@dataclass(slots=True)
class SideCallDone(WorkerEvent):
    """A call that either connection may take has been answered on this one."""

    connection: ConnectionName


@dataclass(slots=True)
class LeasesRenewed(SideCallDone):
    """Verdicts by token. `cancelled`: the runs of those tasks that are to be ended."""

    verdicts: tuple[tuple[int, LeaseVerdict], ...]
    standing: Standing = GOOD_STANDING
    cancelled: tuple[RunCancelled, ...] = ()


@dataclass(slots=True)
class Fetched(SideCallDone):
    """What a handler asked for was sent to its runner, unless another session has its task."""

    is_locked: bool = False


@dataclass(slots=True)
class ProgressTold(WorkerEvent):
    """A handler has told of its progress, as JSON."""

    token: int
    value: bytes


@dataclass(slots=True)
class OutputWaiting(WorkerEvent):
    """Handlers have written output that is to be published."""


@dataclass(slots=True)
class ProgressWritten(SideCallDone):
    """The database has the values of these tokens, and of no others."""

    stored: tuple[int, ...]


class SignedOff(SideCallDone):
    """The worker's row is marked stopped."""


@dataclass(slots=True)
class RunnerEvent(WorkerEvent):
    """What has happened to a runner."""

    id: int


@dataclass(slots=True)
class Forked(RunnerEvent):
    pid: int


@dataclass(slots=True)
class ForkRefused(RunnerEvent):
    """No process, memory or descriptor for a runner."""

    text: str
    needs_room: bool = False  # which other runners have


class RunnerReady(RunnerEvent):
    """A runner waits for its task."""


class LeftBehind(NamedTuple):
    """What a task left behind in its runner's process."""

    children: tuple[str, ...] = ()  # names of child processes
    reset: tuple[str, ...] = ()  # what only a new process has as it was
    tasks: tuple[str, ...] = ()  # of a runner that tasks share: those that it had


NOTHING_LEFT = LeftBehind()


class Recorded(NamedTuple):
    """What the database made of a task that its runner has completed by itself."""

    answer: ReportAnswer
    changes: tuple[RunChange, ...] = ()


@dataclass(slots=True)
class Done(RunnerEvent):
    """
    A runner has sent the whole result of a task; `stack`: where that was when asked to end.
    `recorded`: the database has the result, too.
    """

    report: TaskReport
    left: LeftBehind = NOTHING_LEFT
    stack: str = ""
    recorded: Recorded | None = None


@dataclass(slots=True)
class ResultAnnounced(RunnerEvent):
    """A task is done; its large result waits in the runner's socket."""

    token: int
    size: int


@dataclass(slots=True)
class Committing(RunnerEvent):
    """A runner commits the completion of a task; its result will tell whether that succeeded."""

    token: int


@dataclass(slots=True)
class HandlerAsked(WorkerEvent):
    """A handler asked for something."""

    request: FetchRequest


@dataclass(slots=True)
class NoResultYet(RunnerEvent):
    """No result of this token lies in the runner's socket; PING: no answer to a ping."""

    token: int


PING = 0  # no task has this token


class Ponged(RunnerEvent):
    """The event loop that tasks share in a runner has answered a ping."""


@dataclass(slots=True)
class BadFrameReceived(RunnerEvent):
    """A runner sent what is not a frame of ours, or too much."""

    code: str
    text: str


@dataclass(slots=True)
class Undelivered(RunnerEvent):
    """A runner ended before it had read its task: the handler never began."""

    token: int


class RunnerEnded(RunnerEvent):
    """A runner has ended, its socket is read to the end, the rest of its tree is killed."""


@dataclass(slots=True)
class Reaped(RunnerEvent):
    """
    A runner's wait status, what it used, and the stack that it wrote, if any. Of one that tasks
    shared: whose step it executed at the end, and where those were that had been asked to end. And
    what is kept of the output of its tasks.
    """

    status: int | None  # None: a task that shares a runner ended as it was asked to
    cpu_s: float | None = 0.0
    peak_kb: int = 0
    stack: str = ""
    executing: int = 0  # a token
    stacks: Mapping[int, str] = field(default_factory=dict)  # by token
    printed: Mapping[int, KeptOutput] = field(default_factory=dict)  # by token


@dataclass(slots=True)
class ZygoteEnded(WorkerEvent):
    text: str


Event = WorkerEvent | Message
