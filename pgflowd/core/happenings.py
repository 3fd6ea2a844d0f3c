"""
Happenings: what a worker is told (events), and what it then does (actions).

Each action is started at once and never waited for: its end is another event. `chance` is a
number from 0 to 1, drawn by whoever saw the event, wherever a delay is to be jittered.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pgflowd.core.mind import Report, Task

MAIN, BEATS = "main", "beats"  # the two lines to the database


# Events


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Woken:
    """Somebody says that there may be work, or that a run was cancelled."""


@dataclass(frozen=True, slots=True)
class Connected:
    line: str


@dataclass(frozen=True, slots=True)
class Broken:
    """A connection could not be made or a call on it failed; it is closed.

    `meaning`: "again" (reconnect), "loud" (likewise, a person has to act), "fault" (the
    installation is wrong: try slowly), "gone" (our row or flow), "core" (schema pgflow changed).
    """

    line: str
    meaning: str
    text: str
    chance: float = 0.5


@dataclass(frozen=True, slots=True)
class Answer:
    """The database's verdict on one report."""

    verdict: str
    sqlstate: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class News:
    """A run, or a step of it, was started, completed, failed or skipped by our report."""

    run_id: str
    step: str | None  # None: the run
    status: str
    took_s: float | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Turned:
    """A turn has ended: an answer for each report, the claimed tasks, and the news asked for."""

    answers: tuple[Answer, ...]
    tasks: tuple[Task, ...]
    chance: float = 0.5
    news: tuple[News, ...] = ()


@dataclass(frozen=True, slots=True)
class Strangers:
    """Messages that belong to no open task were archived."""

    count: int


@dataclass(frozen=True, slots=True)
class NextDue:
    """When the next hidden message becomes visible (None: there is none), and how many are."""

    in_s: float | None
    visible: int = 0


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A run of which we held a task was cancelled."""

    run_id: str
    by: str | None
    why: str | None


@dataclass(frozen=True, slots=True)
class Beaten:
    """A beat has ended: verdicts by token, and "ok", "deprecated" or "gone" for our row.

    `due_in_s`: when the next hidden message becomes visible; None: there is none.
    `queued`: how many are visible. `cancelled`: why some tasks are to be given up. `completed`:
    how many of the runs that were asked about we have completed.
    """

    verdicts: tuple[tuple[int, str], ...]
    standing: str = "ok"
    due_in_s: float | None = None
    queued: int = 0
    cancelled: tuple[Cancelled, ...] = ()
    completed: int = 0


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a runner asked for was brought to it."""


@dataclass(frozen=True, slots=True)
class Overheard:
    """Handlers have said something that somebody who follows their runs wants to hear."""


@dataclass(frozen=True, slots=True)
class Told:
    """Followers were told what was overheard."""


@dataclass(frozen=True, slots=True)
class SaidGoodbye:
    """Our row says that we stopped."""


@dataclass(frozen=True, slots=True)
class Forked:
    id: int
    pid: int


@dataclass(frozen=True, slots=True)
class Refused:
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
    report: Report
    left: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """A handler wants the run's input, a step's output, or to know where to connect."""

    id: int
    token: int
    what: str
    step: str = ""


@dataclass(frozen=True, slots=True)
class Silent:
    """We looked: no outcome of this token lies in the runner's socket."""

    id: int
    token: int


@dataclass(frozen=True, slots=True)
class Spoilt:
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


# Actions


@dataclass(frozen=True, slots=True)
class Connect:
    line: str


@dataclass(frozen=True, slots=True)
class Cut:
    """Shut a connection's socket down: its call takes too long."""

    line: str


@dataclass(frozen=True, slots=True)
class Turn:
    """Report these and claim so many tasks, in one round trip and one transaction.

    `about`: the runs of which we want to know what the reports have changed.
    """

    reports: tuple[Report, ...]
    wanted: int
    about: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AskDue:
    """Ask when the next message becomes visible."""


@dataclass(frozen=True, slots=True)
class Beat:
    """Renew our row and these leases. `about`: runs that may be complete by now."""

    tokens: tuple[int, ...]
    about: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fetch:
    id: int
    token: int
    what: str
    step: str


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell followers what was overheard."""


@dataclass(frozen=True, slots=True)
class Goodbye:
    """Mark our row stopped."""


@dataclass(frozen=True, slots=True)
class Fork:
    id: int


@dataclass(frozen=True, slots=True)
class Send:
    id: int
    task: Task


@dataclass(frozen=True, slots=True)
class TellStopping:
    id: int


@dataclass(frozen=True, slots=True)
class Peek:
    """Read what lies in the runner's socket; then say Done or Silent."""

    id: int
    token: int


@dataclass(frozen=True, slots=True)
class Term:
    """SIGTERM to the runner's process group."""

    id: int


@dataclass(frozen=True, slots=True)
class Kill:
    """Stop and kill the runner's whole tree."""

    id: int


@dataclass(frozen=True, slots=True)
class Close:
    """Close the runner's socket, so that it ends by itself."""

    id: int


@dataclass(frozen=True, slots=True)
class Reap:
    id: int


@dataclass(frozen=True, slots=True)
class KillZygote:
    pass


@dataclass(frozen=True, slots=True)
class Say:
    """One log record."""

    level: str
    event: str
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunsEnded:
    """So many runs have ended by our reports."""

    status: str
    count: int


@dataclass(frozen=True, slots=True)
class LookedAround:
    """Nobody called, and it was time to look for tasks: "due", "fallback" or "poll"."""

    reason: str


@dataclass(frozen=True, slots=True)
class Leave:
    code: int
    why: str = ""
    failure: tuple[str, str] | None = None
