"""
Events: what the engine of a worker is told.

`chance` is a number from 0 to 1, drawn where the event was seen, for delays with jitter.
"""

from __future__ import annotations

from dataclasses import dataclass

from pgflowd.core.worker.state import Task, TaskReport


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class WokenUp:
    """Somebody says that there may be work, or that a run was cancelled."""


@dataclass(frozen=True, slots=True)
class Connected:
    line: str


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    """A connection could not be made or a call on it failed; it is closed.

    `meaning`: "again" (reconnect), "loud" (likewise, a person has to act), "fault" (the
    installation is wrong: try slowly), "gone" (our row or flow), "core" (schema pgflow changed).
    """

    line: str
    meaning: str
    text: str
    chance: float = 0.5


@dataclass(frozen=True, slots=True)
class ReportAnswer:
    """The database's verdict on one report."""

    verdict: str
    sqlstate: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class RunChange:
    """A run, or a step of it, was started, completed, failed or skipped by our report."""

    run_id: str
    step: str | None  # None: the run
    status: str
    took_s: float | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ReportAndClaimDone:
    """A turn has ended: an answer for each report, the claimed tasks, and the news asked for."""

    answers: tuple[ReportAnswer, ...]
    tasks: tuple[Task, ...]
    chance: float = 0.5
    news: tuple[RunChange, ...] = ()


@dataclass(frozen=True, slots=True)
class ForeignMessages:
    """Messages that belong to no open task were archived."""

    count: int


@dataclass(frozen=True, slots=True)
class NextDue:
    """When the next hidden message becomes visible (None: there is none), and how many are."""

    in_s: float | None
    visible: int = 0


@dataclass(frozen=True, slots=True)
class RunCancelled:
    """A run of which we held a task was cancelled."""

    run_id: str
    by: str | None
    why: str | None


@dataclass(frozen=True, slots=True)
class LeasesRenewed:
    """A beat has ended: verdicts by token, and "ok", "deprecated" or "gone" for our row.

    `due_in_s`: when the next hidden message becomes visible; None: there is none.
    `queued`: how many are visible. `cancelled`: why some tasks are to be given up. `completed`:
    how many of the runs that were asked about we have completed.
    """

    verdicts: tuple[tuple[int, str], ...]
    standing: str = "ok"
    due_in_s: float | None = None
    queued: int = 0
    cancelled: tuple[RunCancelled, ...] = ()
    completed: int = 0


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a runner asked for was brought to it."""


@dataclass(frozen=True, slots=True)
class OutputWaiting:
    """Handlers have said something that somebody who follows their runs wants to hear."""


@dataclass(frozen=True, slots=True)
class OutputPublished:
    """Followers were told what was overheard."""


@dataclass(frozen=True, slots=True)
class SignedOff:
    """Our row says that we stopped."""


@dataclass(frozen=True, slots=True)
class Forked:
    id: int
    pid: int


@dataclass(frozen=True, slots=True)
class ForkRefused:
    """No process, memory or descriptor for a runner."""

    id: int
    text: str


@dataclass(frozen=True, slots=True)
class RunnerReady:
    id: int


@dataclass(frozen=True, slots=True)
class Done:
    """A runner's whole outcome. `left`: what the task left behind."""

    id: int
    report: TaskReport
    left: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HandlerAsked:
    """A handler wants the run's input, a step's output, or to know where to connect."""

    id: int
    token: int
    what: str
    step: str = ""


@dataclass(frozen=True, slots=True)
class NoResultYet:
    """We looked: no outcome of this token lies in the runner's socket."""

    id: int
    token: int


@dataclass(frozen=True, slots=True)
class BadFrameReceived:
    """A runner sent what is no frame of ours, or too much."""

    id: int
    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Undelivered:
    """A runner died before it had read its task: the handler never began."""

    id: int
    token: int


@dataclass(frozen=True, slots=True)
class RunnerEnded:
    """A runner is dead, its socket read to the end, the rest of its tree killed."""

    id: int


@dataclass(frozen=True, slots=True)
class Reaped:
    """A runner's status as `wait` tells it, what it used, and the stack it left, if any."""

    id: int
    status: int
    cpu_s: float = 0.0
    peak_kb: int = 0
    stack: str = ""


@dataclass(frozen=True, slots=True)
class ZygoteEnded:
    text: str


@dataclass(frozen=True, slots=True)
class DrainAsked:
    within_s: float | None = None


@dataclass(frozen=True, slots=True)
class StopAsked:
    pass
