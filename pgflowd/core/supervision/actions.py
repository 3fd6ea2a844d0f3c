"""
The actions that `core.supervision` decides and the supervisor performs, in their order.

Each becomes a log record where docs/background/supervision.md, rule 49, asks for one. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pgflowd.core.messages import ConnectionGranted, Drain, QuickStop, SleepIfIdle
from pgflowd.core.supervision.tree import Announcement

RESTARTED = "child.restarted"  # the record that is also counted


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
class LogChild(Action):
    """Write a log record about a child."""

    level: str
    event: str
    id: str
    fields: dict[str, Any]


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
