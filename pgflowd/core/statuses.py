"""
The statuses of runs, steps, tasks, attempts, children and daemons, and how screens show each.

A status is a string with the value of its word, so rows, JSON documents and code compare it
directly. `mark` is its sign on a screen: never colour alone, since each status also has a sign, and
its word is next to it. `is_end` says whether nothing follows. The moves between the states of a
child belong to `core.supervision.tree`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, Self


class ChildState(StrEnum):
    """The state of a child."""

    IDLE = "idle"  # no process; it starts when its position does
    STARTING = "starting"
    UP = "up"
    RESTARTING = "restarting"  # no process; it waits for its delay
    DRAINING = "draining"
    STOPPING = "stopping"
    ASLEEP = "asleep"  # no process: it had nothing to do, and starts when there is work
    PARKED = "failed"
    DISABLED = "disabled"

    @property
    def is_alive(self) -> bool:
        """Whether there is a process."""
        return self in {
            ChildState.STARTING,
            ChildState.UP,
            ChildState.DRAINING,
            ChildState.STOPPING,
        }

    @property
    def is_out(self) -> bool:
        """Whether it was given up, or is not wanted."""
        return self in {ChildState.PARKED, ChildState.DISABLED}


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
    To other runtimes a waiting or paused run has started, a cancelled or expired one has
    failed, none is scheduled or blocked, and one that is undone is as it was.

    `scheduled`: it begins later; `blocked`: other runs must end first; `started`: it goes on;
    `waiting`: each open task waits; `quarantined`: it waits, and a task of it until somebody
    decides; `paused`: none of its tasks begins; `completed`: all its steps are completed or
    skipped; `failed`: a step has failed; `cancelled`: somebody ended it, or a run that it began
    after did not complete; `expired`: its time is over; `undoing`: another run undoes it, or is
    to; `undone`: what it did is undone; `undo_failed`: something of it could not be undone.
    """

    SCHEDULED = "scheduled", Marks.WAITING, False
    BLOCKED = "blocked", Marks.WAITING, False
    STARTED = "started", Marks.ACTIVE, False
    WAITING = "waiting", Marks.WAITING, False
    QUARANTINED = "quarantined", Marks.WARNING, False
    PAUSED = "paused", Marks.PAUSED, False
    COMPLETED = "completed", Marks.DONE
    FAILED = "failed", Marks.FAILED
    CANCELLED = "cancelled", Marks.CANCELLED
    EXPIRED = "expired", Marks.CANCELLED
    UNDOING = "undoing", Marks.ACTIVE, False
    UNDONE = "undone", Marks.DONE
    UNDO_FAILED = "undo_failed", Marks.FAILED


class StepStatus(Status):
    """
    How a step of a run does.

    `created`: other steps come first; `started`: its tasks are open; `completed`: all its tasks
    are completed; `failed`: a task has failed; `skipped`: it is not executed.
    """

    CREATED = "created", Marks.QUEUED, False
    STARTED = "started", Marks.ACTIVE, False
    COMPLETED = "completed", Marks.DONE
    FAILED = "failed", Marks.FAILED
    SKIPPED = "skipped", Marks.PASSED_OVER


class TaskStatus(Status):
    """
    To other runtimes a task is queued or started where it has one of five statuses here.

    `queued`: it is queued; said where nobody looks at the queue; `ready`: it is queued, and may
    be claimed now; `delayed`: it is queued, and may be claimed later; `waiting`: it waits for a
    time, a signal, the end of runs, a worker that has what it needs, or a place of a limit;
    `paused`: it waits for the resume of its run; `quarantined`: it has ended too many workers,
    and waits until somebody decides; `started`: it is executed; said where nobody looks at the
    lease; `leased`: it is executed; `lapsed`: its worker has vanished; `completed`: it is done;
    `failed`: it has failed for good; `skipped`: its step was skipped.
    """

    QUEUED = "queued", Marks.QUEUED, False
    READY = "ready", Marks.QUEUED, False
    DELAYED = "delayed", Marks.QUEUED, False
    WAITING = "waiting", Marks.WAITING, False
    PAUSED = "paused", Marks.PAUSED, False
    QUARANTINED = "quarantined", Marks.WARNING, False
    STARTED = "started", Marks.ACTIVE, False
    LEASED = "leased", Marks.ACTIVE, False
    LAPSED = "lapsed", Marks.WARNING, False
    COMPLETED = "completed", Marks.DONE
    FAILED = "failed", Marks.FAILED
    SKIPPED = "skipped", Marks.PASSED_OVER


class Outcome(Status):
    """
    Of an attempt. The database has no outcome of an open one; screens show it as started.

    `started`: it runs; `completed`: it is done; `failed`: its handler raised; `timed_out`: it
    took longer than it may; `crashed`: its process ended; `stalled`: its worker vanished;
    `released`: it was given back unspent; `suspended`: its task waits; `late`: its run or step
    had ended before; `lost`: another worker had the task.
    """

    STARTED = "started", Marks.ACTIVE, False
    COMPLETED = "completed", Marks.DONE
    FAILED = "failed", Marks.FAILED
    TIMED_OUT = "timed_out", Marks.FAILED
    CRASHED = "crashed", Marks.FAILED
    STALLED = "stalled", Marks.WARNING
    RELEASED = "released", Marks.PASSED_OVER
    SUSPENDED = "suspended", Marks.WAITING
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
    """
    How a daemon does.

    `starting`: not all children were ready yet; `healthy`: all is as it should be; `degraded`:
    something is not; `failed`: it gave up; `draining`: it finishes running tasks, then ends;
    `stopping`: it ends.
    """

    STARTING = "starting", Marks.CHANGING, False
    HEALTHY = "healthy", Marks.UP, False
    DEGRADED = "degraded", Marks.CHANGING, False
    FAILED = "failed", Marks.FAILED, False
    DRAINING = "draining", Marks.CHANGING, False
    STOPPING = "stopping", Marks.CHANGING, False


class DatabaseState(Status):
    """
    Whether a database answers.

    `up`: it answers; `down`: it does not; `unknown`: nobody has asked it yet.
    """

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
