"""
The actions that `core.supervision` decides and the supervisor performs, in their order.

Each becomes a log record where docs/background/supervision.md, rule 49, asks for one. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pgflowd.core.messages import ConnectionGranted, Drain, QuickStop, SleepIfIdle
from pgflowd.core.supervision.tree import Announcement, ChildExit


@dataclass(frozen=True)
class Action:
    """The base of all actions."""


@dataclass(frozen=True)
class StartChild(Action):
    """Fork this child."""

    id: str


@dataclass(frozen=True)
class SendToChild(Action):
    """Ask this child to end, or for its place, or grant it one."""

    id: str
    how: Drain | QuickStop | SleepIfIdle | ConnectionGranted


@dataclass(frozen=True)
class KillChild(Action):
    """Kill this child and its Unix session: it has exceeded a limit."""

    id: str
    why: str


@dataclass(frozen=True)
class Discover(Action):
    """Import all flows in processes of their own, and report the result."""


@dataclass(frozen=True)
class LogAction(Action):
    """The base of the actions that are one log record."""

    id: str
    event: ClassVar[str]
    level: ClassVar[str] = "error"

    def fields(self) -> dict[str, Any]:
        """Return the fields of the record."""
        raise NotImplementedError


@dataclass(frozen=True)
class LogRestart(LogAction):
    """Log that this child is restarted after a delay, for the count-th time."""

    event: ClassVar[str] = "child.restarted"
    level: ClassVar[str] = "warning"
    exit: ChildExit
    count: int
    delay_s: float

    def fields(self) -> dict[str, Any]:
        return {"reason": self.exit.reason, "count": self.count, "delay_s": self.delay_s}


@dataclass(frozen=True)
class LogPark(LogAction):
    """Log that this child stays without a process."""

    event: ClassVar[str] = "child.parked"
    exit: ChildExit

    def fields(self) -> dict[str, Any]:
        return {"code": self.exit.code, "error": self.exit.text}


@dataclass(frozen=True)
class LogWake(LogAction):
    """Log that this sleeping child is started, and why."""

    event: ClassVar[str] = "child.woken"
    level: ClassVar[str] = "info"
    cause: str

    def fields(self) -> dict[str, Any]:
        return {"reason": self.cause}


@dataclass(frozen=True)
class LogGiveUp(LogAction):
    """Log that the daemon ends because of this child and its exits."""

    event: ClassVar[str] = "supervisor.gave_up"
    reason: str
    exits: tuple[str, ...]

    def fields(self) -> dict[str, Any]:
        return {"code": "E413", "reason": self.reason, "exits": list(self.exits)}


@dataclass(frozen=True)
class Announce(Action):
    """Report to the log and to the service manager."""

    what: Announcement


@dataclass(frozen=True)
class ReportReload(Action):
    """Log and answer what a reload did to each flow."""

    kept: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    retried: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()


@dataclass(frozen=True)
class End(Action):
    """All children have ended: end the daemon with this exit code."""

    code: int
