"""
What a task keeps and waits for, its names and times; `core.context` has the calls of handlers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum, StrEnum
from typing import Any, Final, ParamSpec, TypeVar

from pgflowd.core.settings.values import parse_duration
from pgflowd.errors import RunError

MAX_NAME_CHARS = 200
MAX_CHECKPOINT_CHARS = 220  # of one that ends a wait: `signal NAME 12345`
MAX_RUNS = 1000  # of one wait: their ids are in the head of a frame
MAX_WAIT_S = 100 * 365 * 86400.0  # 100 years: far above any plan, and any database can add it
NEWER_CODE_S = 30.0  # until a task is tried again whose checkpoints are of newer code
WAITING_CALLS = frozenset(
    {"memo", "save", "load", "drop", "sleep", "wait_signal", "start", "wait", "hand_on"}
)
RESERVED_PREFIXES = ("sleep ", "signal ", "runs ")  # of the names of checkpoints

Time = float | str | timedelta  # seconds, "2h" or a timedelta
P = ParamSpec("P")
T = TypeVar("T")


class Raise(Enum):
    """The type of `RAISE`: a wait without a default raises when its time is over."""

    RAISE = "raise"


RAISE: Final = Raise.RAISE


class WaitKind(StrEnum):
    SLEEP = "sleep"
    SIGNAL = "signal"
    RUNS = "runs"  # for the end of runs
    NEED = "need"  # for a worker that has what the task needs
    LIMIT = "limit"  # for a place of the limit of its step; no handler asks for it


@dataclass(frozen=True)
class Wait:
    """What a task waits for, and until when: `in_s` from now, or `until`, or for ever."""

    kind: WaitKind
    name: str | None = None  # of the signal
    checkpoint: str | None = None  # which keeps how the wait ended
    in_s: float | None = None
    until: datetime | None = None
    why: str | None = None
    needs: tuple[str, ...] | None = None
    runs: tuple[str, ...] | None = None  # whose ends it waits for

    def as_json(self) -> dict[str, Any]:
        """The wait as runners and workers send it; what is not set is left out."""
        until = as_utc(self.until).isoformat() if self.until else None
        runs = self.runs and list(self.runs)
        whole = {**vars(self), "kind": str(self.kind), "until": until, "runs": runs}
        return {key: value for key, value in whole.items() if value is not None}


def as_utc(moment: datetime) -> datetime:
    """The moment in UTC: PostgreSQL refuses offsets that Python allows, such as 23 hours."""
    try:
        return moment.astimezone(UTC)
    except OverflowError:  # before the year 1: long over, too
        return datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Checkpoint:
    """A value that a task has kept, and the version of the code that kept it."""

    name: str
    version: int
    data: Any


Keep = Callable[[Checkpoint], None]


class Suspended(BaseException):
    """Ends a handler that waits. It begins again when the wait is over."""

    def __init__(self, wait: Wait) -> None:
        needed = f"a worker with {', '.join(wait.needs)}" if wait.needs else wait.why
        super().__init__(f"waits for {wait.checkpoint or needed}")
        self.wait = wait


def check_name(name: object) -> None:
    """Raise E429 unless a user may give a checkpoint this name."""
    fault = name_fault(name)
    if not fault and isinstance(name, str) and name.startswith(RESERVED_PREFIXES):
        fault = "begins like the name of a wait"
    if fault:
        raise bad_name("a checkpoint", name, fault, "give it another name")


def check_signal_name(name: object) -> None:
    """Raise E429 unless a signal may have this name."""
    if fault := name_fault(name):
        raise bad_name("a signal", name, fault, "give it another name")


def check_dedup(dedup: object) -> None:
    """Raise E429 unless a signal may have this key, or has none."""
    if dedup is not None and (fault := name_fault(dedup)):
        raise bad_name("a signal", dedup, fault, "give it another one, or none", kind="dedup")


def name_fault(name: object, most: int = MAX_NAME_CHARS) -> str | None:
    """What is wrong with a name of a checkpoint or signal."""
    if not isinstance(name, str):
        return "is not a string"
    if not name or len(name) > most:
        return f"must have 1 to {most} characters"
    if "\0" in name or any("\ud800" <= each <= "\udfff" for each in name):
        return "has a character that PostgreSQL cannot store"
    return None


def bad_name(of_what: str, name: object, fault: str, remedy: str, kind: str = "name") -> RunError:
    shown = repr(name)
    shown = shown if len(shown) <= 60 else f"{shown[:59]}…"
    return RunError(f"the {kind} {shown} of {of_what} {fault}", code="E429", next=remedy)


def seconds_of(time: object, what: str) -> float:
    """The seconds of a duration, or E430."""
    if isinstance(time, str):
        try:
            seconds = parse_duration(time)
        except ValueError as error:
            raise bad_time(f"{what} is {time[:60]!r}: {error}") from None
    elif isinstance(time, timedelta):
        seconds = time.total_seconds()
    elif isinstance(time, int | float) and not isinstance(time, bool):
        seconds = float(max(min(time, 2 * MAX_WAIT_S), -1))  # an integer may be no float
    else:
        raise bad_time(f"{what} is {repr(time)[:60]}")
    if math.isnan(seconds) or seconds < 0:
        raise bad_time(f"{what} is not 0 or more")
    if seconds > MAX_WAIT_S:
        raise bad_time(f"{what} is more than 100 years")
    return seconds


def moment_of(time: object, what: str) -> datetime:
    """The moment itself, or E430."""
    if not isinstance(time, datetime):
        raise bad_time(f"{what} is {repr(time)[:60]}, which is not a datetime")
    if time.utcoffset() is None:
        raise bad_time(f"{what} is {time.isoformat()}, which has no time zone")
    return time


def bad_time(text: str) -> RunError:
    remedy = 'give seconds, a text such as "2h", a timedelta, or a datetime with a time zone'
    return RunError(text, code="E430", next=remedy)


def wait_for_newer_code(checkpoint: Checkpoint, version: int) -> Wait:
    """The wait of a task whose checkpoints only newer code can read."""
    why = (
        f"E425 checkpoint '{checkpoint.name}' is of version {checkpoint.version},"
        f" this code is of version {version}; newer code will go on"
    )
    return Wait(WaitKind.SLEEP, in_s=NEWER_CODE_S, why=why)


def suspension_of(error: BaseException) -> Suspended | None:
    """The suspension that left a handler, alone or in groups that hold nothing else."""
    if isinstance(error, Suspended):
        return error
    if not isinstance(error, BaseExceptionGroup):
        return None
    inside = [suspension_of(each) for each in error.exceptions]
    return inside[0] if all(inside) else None
