"""
Actions: what the supervisor shall do, as decided by `core.supervision`.

They are in the order in which they are to be done. Each becomes a log record where rule 49
asks for one. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from pgflowd.core.messages import Drain, QuickStop


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
    """Kill this child and its Unix session; its patience is over."""

    id: str
    why: str


@dataclass(frozen=True)
class Discover(Action):
    """Import all flows in a process of their own, and report what was found."""


@dataclass(frozen=True)
class Forget(Action):
    """This child is no part of the tree any more."""

    id: str


@dataclass(frozen=True)
class Restarting(Action):
    """Record: this child is restarted after a delay, for the count-th time."""

    id: str
    reason: str
    count: int
    delay_s: float


@dataclass(frozen=True)
class Parked(Action):
    """Record: this child stays without a process."""

    id: str
    code: str
    text: str


@dataclass(frozen=True)
class GaveUp(Action):
    """Record: the daemon ends, because of this child and its exits."""

    id: str
    reason: str
    exits: tuple[str, ...]


@dataclass(frozen=True)
class Announce(Action):
    """Tell the service manager and the log: "ready", "draining", "stopping"."""

    what: str


@dataclass(frozen=True)
class Reloaded(Action):
    """Record and answer: what a reload did to each flow."""

    kept: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    retried: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()


@dataclass(frozen=True)
class End(Action):
    """All children are gone: leave with this exit code."""

    code: int
