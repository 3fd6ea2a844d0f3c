"""
What `memo`, `save`, `load`, `drop`, `sleep`, `wait_signal` and `hand_on` of a handler's `ctx` do.

`WaitingContext` is the base of the `ctx` in a runner and of that in tests, which know where the
checkpoints of a task are kept. A wait ends by a checkpoint: a handler that waits raises
`Suspended`, begins again when the wait is over, finds the checkpoint, and passes that line.

    sleep 1, sleep NAME       {"slept": true}
    signal NAME 1             {"got": payload} or {"timeout": true}; counted for each name
    runs 1                    {"ended": true} or {"timeout": true} (`core.wishes`)

So a name of the user's own may not begin like one of these.
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum, StrEnum
from functools import cached_property
from typing import Any, Final, NoReturn, ParamSpec, TypeVar

from pgflowd.core.json import as_stored, deep_copy
from pgflowd.core.settings.values import needs_fault, parse_duration, sorted_needs
from pgflowd.core.typed.codec import read_as
from pgflowd.errors import RunError, SignalTimeout

MAX_NAME_CHARS = 200
MAX_CHECKPOINT_CHARS = 220  # of one that ends a wait: `signal NAME 12345`
MAX_WAIT_S = 100 * 365 * 86400.0  # 100 years: far above any plan, and any database can add it
NEWER_CODE_S = 30.0  # until a task is tried again whose checkpoints are of newer code
MAX_NOTE_CHARS = 1000
_NEEDS_NEXT = 'name caps that other workers have, such as needs=["gpu"]'
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


class WaitingContext(ABC):
    """The calls of `ctx` by which a handler remembers and waits."""

    step_slug: str
    suspended: Suspended | None = None  # raised in this attempt; it must leave the handler
    _known: dict[str, Checkpoint] | None = None  # by name; None: not read yet

    @property
    @abstractmethod
    def _version(self) -> int:
        """The option `version` of the step."""

    @abstractmethod
    def _moment(self) -> datetime: ...
    @abstractmethod
    def _read_checkpoints(self) -> Iterable[Checkpoint]:
        """All of the task's; asked once, at the first use."""

    @abstractmethod
    def _keep(self, checkpoint: Checkpoint) -> None:
        """Keep it for the attempts to come, or raise, and keep what was there."""

    @abstractmethod
    def _forget(self, name: str) -> None: ...

    def memo(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        check_name(name)
        called = getattr(fn, "__call__", None)  # noqa: B004  an object whose call is async
        if inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(called):
            return self._memo_async(name, fn, *args, **kwargs)  # type: ignore[return-value]
        if name in self._saved:
            return self._value(name)  # type: ignore[no-any-return]
        with self._work_of_memo() as keep:
            return self._save(name, fn(*args, **kwargs), keep)  # type: ignore[no-any-return]

    async def _memo_async(self, name: str, fn: Any, *args: Any, **kwargs: Any) -> Any:
        if name in self._saved:
            return self._value(name)
        with self._work_of_memo() as keep:
            return self._save(name, await fn(*args, **kwargs), keep)

    def save(self, name: str, value: Any) -> None:
        check_name(name)
        self._save(name, value, self._keep)

    def load(self, name: str, default: Any = None) -> Any:
        check_name(name)
        return self._value(name) if name in self._saved else default

    def drop(self, name: str) -> None:
        check_name(name)
        if name in self._saved:
            self._forget(name)
            del self._saved[name]

    def sleep(
        self,
        duration: Time | None = None,
        *,
        until: datetime | None = None,
        name: str | None = None,
    ) -> None:
        if name is None:
            self._counts["sleep"] += 1
        else:
            self._check_sleep_name(name)
        checkpoint = f"sleep {self._counts['sleep'] if name is None else name}"
        if until is not None and duration is None:
            if (moment_of(until, "until") - self._moment()).total_seconds() > MAX_WAIT_S:
                raise _bad_time(f"until is {until.isoformat()}, more than 100 years ahead")
            wait = Wait(WaitKind.SLEEP, checkpoint=checkpoint, until=until)
        elif duration is not None and until is None:
            in_s = seconds_of(duration, "the duration of a sleep")
            wait = Wait(WaitKind.SLEEP, checkpoint=checkpoint, in_s=in_s)
        else:
            raise _bad_time("a sleep has a duration or a moment, one of the two")
        self._end_of(wait)

    def wait_signal(
        self,
        name: str,
        as_type: Any = None,
        *,
        timeout: Time | None = None,
        default: Any = RAISE,
    ) -> Any:
        check_signal_name(name)
        in_s = None if timeout is None else seconds_of(timeout, f"the timeout of signal '{name}'")
        self._counts[f"signal {name}"] += 1
        checkpoint = f"signal {name} {self._counts[f'signal {name}']}"
        end = self._end_of(Wait(WaitKind.SIGNAL, name, checkpoint, in_s))
        if "got" in end:
            return read_as(deep_copy(end["got"]), as_type, f"signal '{name}'")
        if default is RAISE:
            raise SignalTimeout(f"step {self.step_slug}: signal '{name}' did not come in time")
        return default

    def hand_on(self, *, needs: Sequence[str], note: str = "") -> NoReturn:
        if fault := needs_fault(needs):
            raise _bad_name("a task that is handed on", needs, fault, _NEEDS_NEXT, kind="needs")
        note = str(note)[:MAX_NOTE_CHARS]
        self._suspend(Wait(WaitKind.NEED, why=note or None, needs=sorted_needs(needs)))

    # -- inside --------------------------------------------------------------------------

    @contextmanager
    def _work_of_memo(self) -> Iterator[Keep]:
        """Around the function of a memo; gives what keeps its result."""
        yield self._keep

    @property
    def _saved(self) -> dict[str, Checkpoint]:
        if self._known is None:
            read = {each.name: each for each in self._read_checkpoints()}
            for each in read.values():
                if each.version > self._version:
                    self._suspend(wait_for_newer_code(each, self._version))
            if self._known is None:  # else another thread was faster, and may have saved since
                self._known = read
        return self._known

    @cached_property
    def _counts(self) -> Counter[str]:
        """How often this attempt has slept, by names, too, and waited for each signal."""
        return Counter()

    def _check_sleep_name(self, name: object) -> None:
        """Raise E429 unless a sleep may have this name: one that is over would not last again."""
        fault = name_fault(name)
        if not fault and str(name).isdecimal():
            fault = "is a number, as sleeps without a name have one"
        elif not fault and self._counts[f"sleep {name}"]:
            fault = "was slept before in this attempt"
        if fault:
            raise _bad_name("a sleep", name, fault, "give it another name, or none")
        self._counts[f"sleep {name}"] += 1

    def _value(self, name: str) -> Any:
        return deep_copy(self._data(name))

    def _data(self, name: str) -> Any:
        """What a checkpoint holds."""
        return self._saved[name].data

    def _save(self, name: str, value: Any, keep: Keep) -> Any:
        """Keep a value; return it as every later attempt will see it."""
        checkpoint = Checkpoint(name, self._version, as_stored(value, what=f"checkpoint '{name}'"))
        saved = self._saved
        keep(checkpoint)
        saved[name] = checkpoint
        return self._value(name)

    def _end_of(self, wait: Wait) -> Any:
        """How the wait ended; suspends the task if it has not."""
        if wait.checkpoint not in self._saved:
            self._suspend(wait)
        return self._data(str(wait.checkpoint))

    def _suspend(self, wait: Wait) -> NoReturn:
        """End the handler. One that goes on nevertheless waits for what it waited for first."""
        self.suspended = self.suspended or Suspended(wait)
        raise self.suspended


def check_name(name: object) -> None:
    """Raise E429 unless a user may give a checkpoint this name."""
    fault = name_fault(name)
    if not fault and isinstance(name, str) and name.startswith(RESERVED_PREFIXES):
        fault = "begins like the name of a wait"
    if fault:
        raise _bad_name("a checkpoint", name, fault, "give it another name")


def check_signal_name(name: object) -> None:
    """Raise E429 unless a signal may have this name."""
    if fault := name_fault(name):
        raise _bad_name("a signal", name, fault, "give it another name")


def check_dedup(dedup: object) -> None:
    """Raise E429 unless a signal may have this key, or has none."""
    if dedup is not None and (fault := name_fault(dedup)):
        raise _bad_name("a signal", dedup, fault, "give it another one, or none", kind="dedup")


def name_fault(name: object, most: int = MAX_NAME_CHARS) -> str | None:
    """What is wrong with a name of a checkpoint or signal."""
    if not isinstance(name, str):
        return "is not a string"
    if not name or len(name) > most:
        return f"must have 1 to {most} characters"
    if "\0" in name or any("\ud800" <= each <= "\udfff" for each in name):
        return "has a character that PostgreSQL cannot store"
    return None


def _bad_name(of_what: str, name: object, fault: str, remedy: str, kind: str = "name") -> RunError:
    shown = repr(name)
    shown = shown if len(shown) <= 60 else f"{shown[:59]}…"
    return RunError(f"the {kind} {shown} of {of_what} {fault}", code="E429", next=remedy)


def seconds_of(time: object, what: str) -> float:
    """The seconds of a duration, or E430."""
    if isinstance(time, str):
        try:
            seconds = parse_duration(time)
        except ValueError as error:
            raise _bad_time(f"{what} is {time[:60]!r}: {error}") from None
    elif isinstance(time, timedelta):
        seconds = time.total_seconds()
    elif isinstance(time, int | float) and not isinstance(time, bool):
        seconds = float(max(min(time, 2 * MAX_WAIT_S), -1))  # an integer may be no float
    else:
        raise _bad_time(f"{what} is {repr(time)[:60]}")
    if math.isnan(seconds) or seconds < 0:
        raise _bad_time(f"{what} is not 0 or more")
    if seconds > MAX_WAIT_S:
        raise _bad_time(f"{what} is more than 100 years")
    return seconds


def moment_of(time: object, what: str) -> datetime:
    """The moment itself, or E430."""
    if not isinstance(time, datetime):
        raise _bad_time(f"{what} is {repr(time)[:60]}, which is not a datetime")
    if time.utcoffset() is None:
        raise _bad_time(f"{what} is {time.isoformat()}, which has no time zone")
    return time


def _bad_time(text: str) -> RunError:
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


def swallowed(suspended: Suspended) -> RunError:
    """The failure of a handler that returned although it was suspended."""
    text = f"the handler caught what ends it while it {suspended}"
    return RunError(text, code="E426", next="catch Exception, not BaseException")
