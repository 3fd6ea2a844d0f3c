"""
The statuses of runs, steps, tasks, attempts, children and daemons, and how screens show each.

A status is a string with the value of its word, so rows, JSON documents and code compare it
directly. `mark` is its sign on a screen: never colour alone, since each status also has a sign, and
its word is next to it. `is_end` says whether nothing follows. The states of a child and their
moves belong to `core.supervision.tree`; this module has only their signs.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, Self

from pgflowd.core.supervision.tree import ChildState


class Mark(NamedTuple):
    """A sign on a screen."""

    sign: str
    ascii: str  # where the terminal shows no Unicode
    colour: str | None = None


class Marks:
    """The signs of all statuses."""

    DONE = Mark("✔", "+", "green")
    FAILED = Mark("✖", "x", "red")
    ACTIVE = Mark("▶", ">", "cyan")
    QUEUED = Mark("·", ".")
    WAITING = Mark("◷", "w", "blue")
    PAUSED = Mark("‖", "=", "yellow")
    PASSED_OVER = Mark("↷", "~", "yellow")
    CANCELLED = Mark("⊘", "/", "yellow")
    WARNING = Mark("⚠", "!", "yellow")
    UP = Mark("●", "*", "green")
    CHANGING = Mark("◐", "o", "yellow")
    ASLEEP = Mark("☾", "z", "green")
    OFF = Mark("○", "-")
    UNKNOWN = Mark("?", "?")


class Status(StrEnum):
    """Base of all statuses. A word that a newer database has is shown with a question mark."""

    mark: Mark
    is_end: bool

    def __new__(cls, word: str, mark: Mark = Marks.UNKNOWN, is_end: bool = True) -> Self:
        member = str.__new__(cls, word)
        member._value_ = word
        member.mark = mark
        member.is_end = is_end
        return member

    @classmethod
    def _missing_(cls, value: object) -> Status | None:
        if not isinstance(value, str):
            return None
        member = str.__new__(cls, value)
        member._name_, member._value_ = value.upper(), value
        member.mark, member.is_end = Marks.UNKNOWN, True
        return member


class RunStatus(Status):
    """
    To other runtimes a waiting or paused run has started, a cancelled or expired one has failed,
    none is scheduled or blocked, and one that is undone is as it was.
    """

    SCHEDULED = "scheduled", Marks.WAITING, False  # it begins later
    BLOCKED = "blocked", Marks.WAITING, False  # other runs must end first
    STARTED = "started", Marks.ACTIVE, False
    WAITING = "waiting", Marks.WAITING, False  # each of its open tasks waits
    QUARANTINED = "quarantined", Marks.WARNING, False  # it waits, and a task until somebody decides
    PAUSED = "paused", Marks.PAUSED, False  # none of its tasks begins
    COMPLETED = "completed", Marks.DONE
    FAILED = "failed", Marks.FAILED
    CANCELLED = "cancelled", Marks.CANCELLED
    EXPIRED = "expired", Marks.CANCELLED  # its time was over
    UNDOING = "undoing", Marks.ACTIVE, False  # another run undoes it, or is to
    UNDONE = "undone", Marks.DONE
    UNDO_FAILED = "undo_failed", Marks.FAILED  # something of it could not be undone


class StepStatus(Status):
    CREATED = "created", Marks.QUEUED, False
    STARTED = "started", Marks.ACTIVE, False
    COMPLETED = "completed", Marks.DONE
    FAILED = "failed", Marks.FAILED
    SKIPPED = "skipped", Marks.PASSED_OVER


class TaskStatus(Status):
    """To other runtimes a task is queued or started where it has one of five statuses here."""

    QUEUED = "queued", Marks.QUEUED, False
    READY = "ready", Marks.QUEUED, False
    DELAYED = "delayed", Marks.QUEUED, False
    WAITING = "waiting", Marks.WAITING, False  # for a time or a signal
    PAUSED = "paused", Marks.PAUSED, False  # it waits for the resume of its run
    QUARANTINED = "quarantined", Marks.WARNING, False  # it has ended too many workers
    STARTED = "started", Marks.ACTIVE, False
    LEASED = "leased", Marks.ACTIVE, False
    LAPSED = "lapsed", Marks.WARNING, False  # started, and its lease is over
    COMPLETED = "completed", Marks.DONE
    FAILED = "failed", Marks.FAILED
    SKIPPED = "skipped", Marks.PASSED_OVER  # its step was skipped while it was queued or started


class Outcome(Status):
    """Of an attempt. The database has no outcome of an open one; screens show it as started."""

    STARTED = "started", Marks.ACTIVE, False
    COMPLETED = "completed", Marks.DONE
    FAILED = "failed", Marks.FAILED
    TIMED_OUT = "timed_out", Marks.FAILED
    CRASHED = "crashed", Marks.FAILED
    STALLED = "stalled", Marks.WARNING
    RELEASED = "released", Marks.PASSED_OVER
    SUSPENDED = "suspended", Marks.WAITING  # its handler waits, and begins again later
    LATE = "late", Marks.WARNING
    LOST = "lost", Marks.WARNING

    @property
    def is_failure(self) -> bool:
        """Whether a handler failed, so that the attempt counts."""
        return self in (Outcome.FAILED, Outcome.TIMED_OUT, Outcome.CRASHED)


OPEN_TASK_STATUSES = (
    TaskStatus.WAITING,
    TaskStatus.PAUSED,
    TaskStatus.QUARANTINED,
    TaskStatus.READY,
    TaskStatus.DELAYED,
    TaskStatus.LEASED,
    TaskStatus.LAPSED,
)


class DaemonState(Status):
    STARTING = "starting", Marks.CHANGING, False
    HEALTHY = "healthy", Marks.UP, False
    DEGRADED = "degraded", Marks.CHANGING, False
    FAILED = "failed", Marks.FAILED, False
    DRAINING = "draining", Marks.CHANGING, False
    STOPPING = "stopping", Marks.CHANGING, False


class DatabaseState(Status):
    UP = "up", Marks.UP, False
    DOWN = "down", Marks.CHANGING, False
    UNKNOWN = "unknown", Marks.CHANGING, False


def child_mark(state: str) -> Mark:
    """How a state of a child looks; each one between up and down is changing."""
    return _CHILDREN.get(state, Marks.CHANGING)


_CHILDREN: dict[str, Mark] = {
    ChildState.UP.value: Marks.UP,
    ChildState.ASLEEP.value: Marks.ASLEEP,
    ChildState.PARKED.value: Marks.FAILED,
    ChildState.DISABLED.value: Marks.OFF,
}
