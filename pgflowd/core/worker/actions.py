"""
Actions: what the engine of a worker wants done.

Each action is started at once and never waited for: its end is an event.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pgflowd.core.worker.state import Task, TaskReport


@dataclass(frozen=True, slots=True)
class Connect:
    line: str


@dataclass(frozen=True, slots=True)
class CutConnection:
    """Shut a connection's socket down: its call takes too long."""

    line: str


@dataclass(frozen=True, slots=True)
class ReportAndClaim:
    """Report these and claim so many tasks, in one round trip and one transaction.

    `about`: the runs of which we want to know what the reports have changed.
    """

    reports: tuple[TaskReport, ...]
    wanted: int
    about: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AskNextDue:
    """Ask when the next message becomes visible."""


@dataclass(frozen=True, slots=True)
class RenewLeases:
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
class PublishOutput:
    """Tell followers what was overheard."""


@dataclass(frozen=True, slots=True)
class SignOff:
    """Mark our row stopped."""


@dataclass(frozen=True, slots=True)
class ForkRunner:
    id: int


@dataclass(frozen=True, slots=True)
class SendTask:
    id: int
    task: Task


@dataclass(frozen=True, slots=True)
class AnnounceStop:
    id: int


@dataclass(frozen=True, slots=True)
class ReadResult:
    """Read what lies in the runner's socket; then say Done or Silent."""

    id: int
    token: int


@dataclass(frozen=True, slots=True)
class TerminateRunner:
    """SIGTERM to the runner's process group."""

    id: int


@dataclass(frozen=True, slots=True)
class KillRunner:
    """Stop and kill the runner's whole tree."""

    id: int


@dataclass(frozen=True, slots=True)
class CloseRunner:
    """Close the runner's socket, so that it ends by itself."""

    id: int


@dataclass(frozen=True, slots=True)
class ReapRunner:
    id: int


@dataclass(frozen=True, slots=True)
class KillZygote:
    pass


@dataclass(frozen=True, slots=True)
class WriteLog:
    """One log record."""

    level: str
    event: str
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CountRunsEnded:
    """So many runs have ended by our reports."""

    status: str
    count: int


@dataclass(frozen=True, slots=True)
class ClaimCheckDue:
    """Nobody called, and it was time to look for tasks: "due", "fallback" or "poll"."""

    reason: str


@dataclass(frozen=True, slots=True)
class Leave:
    code: int
    why: str = ""
    failure: tuple[str, str] | None = None
