"""
The actions that `core.supervision` decides and the supervisor performs, in their order.

Each becomes a log record where docs/design/supervision.md, rule 49, asks for one. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from pgflowd.core.messages import Drain, QuickStop
from pgflowd.core.supervision.exits import ChildExit


@dataclass(frozen=True)
class Action:
    """The base of all actions."""


@dataclass(frozen=True)
class StartChild(Action):
    """Fork this child."""

    id: str


@dataclass(frozen=True)
class SendToChild(Action):
    """Ask this child to end."""

    id: str
    how: Drain | QuickStop


@dataclass(frozen=True)
class KillChild(Action):
    """Kill this child and its Unix session: it has exceeded a limit."""

    id: str
    why: str


@dataclass(frozen=True)
class Discover(Action):
    """Import all flows in processes of their own, and report the result."""


@dataclass(frozen=True)
class LogRestart(Action):
    """Log that this child is restarted after a delay, for the count-th time."""

    id: str
    reason: str
    count: int
    delay_s: float


@dataclass(frozen=True)
class LogPark(Action):
    """Log that this child stays without a process."""

    id: str
    exit: ChildExit


@dataclass(frozen=True)
class LogGiveUp(Action):
    """Log that the daemon ends because of this child and its exits."""

    id: str
    reason: str
    exits: tuple[str, ...]


@dataclass(frozen=True)
class Announce(Action):
    """Report to the log and to the service manager: "ready", "draining" or "stopping"."""

    what: str


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
