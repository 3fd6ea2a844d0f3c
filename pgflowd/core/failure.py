"""
Makes the exception of a handler a failure that can be reported.

An ordinary exception is a failed attempt, and the step's options decide what follows. `Fail`, E403
(an output that is not JSON), E405 (a skipped dep without default), E417 (an input that does not fit
its annotation), E426 (a caught suspension) and E427 (no signal, or no end of runs, in time) forbid
a retry, and `RetryAfter` sets the time of the next attempt, which it may leave unspent. The same
holds inside an exception group, such as a `TaskGroup` raises; the group's text names the exceptions
in it, and the attempt is unspent if all of them say so. Texts lose secrets and characters that
PostgreSQL cannot store, and are cut.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from pgflowd.core.redact import redact
from pgflowd.core.settings.values import parse_duration
from pgflowd.errors import PgflowdError

MAX_TYPE_CHARS = 200  # far above any class name
MAX_MESSAGE_CHARS = 4000  # enough for people, and small in the tables and the log
# another attempt of the same code ends in the same way
FINAL_CODES = {"E403", "E405", "E417", "E426", "E427"}
MAX_DELAY_S = 2**31 - 1  # 68 years, the end of SQL's int
MIN_UNSPENT_S = 1.0  # between attempts that are not spent: nothing keeps a worker busy for a day
UNSPENT = "RetryAfter"  # the error type of attempts that their handlers left unspent
AT_MOST_S = 86_400.0  # how long a task may go on so, unless it says

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


class Fail(Exception):
    """Raised by a handler: the task fails for good, without further attempts."""


class RetryAfter(Exception):
    """Raised by a handler: this attempt failed, the next one may start in `delay` seconds.

    In the last attempt it is a failure like any other. With `spend=False` the other side asked to
    wait, and the attempt is not spent. A task may go on so for `at_most` after its first such
    attempt, "1d" unless it says; one whose delay would end later is spent.
    """

    def __init__(
        self,
        delay: float | timedelta,
        reason: str = "",
        *,
        spend: bool = True,
        at_most: str | float | timedelta | None = None,
    ) -> None:
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else float(delay)
        if not math.isfinite(seconds) or seconds < 0:
            raise ValueError(f"RetryAfter needs seconds, 0 or more, not {delay!r}")
        if spend and at_most is not None:
            raise ValueError("at_most limits attempts that are not spent: give spend=False too")
        self.delay_s = min(seconds if spend else max(seconds, MIN_UNSPENT_S), MAX_DELAY_S)
        self.at_most_s = None if spend else _at_most_s(at_most)
        super().__init__(reason or _asked(self.delay_s))


def _at_most_s(given: str | float | timedelta | None) -> float:
    """The seconds of `at_most`."""
    if given is None:
        return AT_MOST_S
    try:
        if isinstance(given, str):
            seconds = parse_duration(given)
        else:
            seconds = given.total_seconds() if isinstance(given, timedelta) else float(given)
    except ValueError as error:
        raise ValueError(f'at_most is seconds, or a text such as "2h", not {given!r}') from error
    if not math.isfinite(seconds) or seconds <= 0:
        raise ValueError(f"at_most needs more than 0 seconds, not {given!r}")
    return min(seconds, MAX_DELAY_S)


def _asked(delay_s: float) -> str:
    return f"asked for a retry in {delay_s:g} s"


@dataclass(frozen=True)
class Failure:
    """A failed attempt, ready to be reported."""

    error_type: str
    message: str
    retry: bool = True
    delay_s: float | None = None
    at_most_s: float | None = None  # not None: the attempt is not spent, for so long


def failure_of(error: BaseException, *, is_last: bool = False) -> Failure:
    """Describe an exception that a handler raised, perhaps in its last attempt."""
    if isinstance(error, BaseExceptionGroup):
        return _failure_of_group(error, is_last)
    name = type(error).__name__
    try:
        text = str(error)
    except BaseException as second:
        text = f"(str() of it raised {type(second).__name__})"
    if isinstance(error, PgflowdError):
        return Failure(name, clean(text, MAX_MESSAGE_CHARS), error.code not in FINAL_CODES)
    if isinstance(error, Fail):
        return Failure(name, clean(text or "Fail", MAX_MESSAGE_CHARS), retry=False)
    if isinstance(error, RetryAfter):
        # a subclass may have left our `__init__` out
        delay_s, at_most_s = getattr(error, "delay_s", 0.0), getattr(error, "at_most_s", None)
        is_final = is_last and at_most_s is None and text == _asked(delay_s)
        text += ", but no attempt is left" * is_final
        message = clean(text, MAX_MESSAGE_CHARS)
        return Failure(name, message, delay_s=delay_s, at_most_s=at_most_s)
    message = f"{name}: {text}" if text else name
    return Failure(clean(name, MAX_TYPE_CHARS), clean(message, MAX_MESSAGE_CHARS))


def _failure_of_group(group: BaseExceptionGroup[BaseException], is_last: bool) -> Failure:
    """The first `Fail` in it decides, else the first `RetryAfter`; else it is an ordinary one."""
    inside = [failure_of(error, is_last=is_last) for error in _leaves(group)]
    name = clean(type(group).__name__, MAX_TYPE_CHARS)
    text = f"{name}: {group.message}: " + "; ".join(failure.message for failure in inside)
    first = min(inside, key=lambda failure: (failure.retry, failure.delay_s is None))
    is_unspent = all(failure.at_most_s is not None for failure in inside)
    at_most_s = first.at_most_s if is_unspent else None
    return Failure(name, clean(text, MAX_MESSAGE_CHARS), first.retry, first.delay_s, at_most_s)


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    pending = list(group.exceptions)
    for error in pending:  # grows while it is read: each group inside adds its exceptions
        if isinstance(error, BaseExceptionGroup):
            pending += error.exceptions
        else:
            yield error


def clean(text: str, longest: int) -> str:
    """The text without NUL, lone surrogates and likely secrets, cut to `longest` characters."""
    # cut twice: a secret that the first cut splits at the end is dropped by the second
    text = redact(_UNSTORABLE.sub("\ufffd", text[: 2 * longest]))
    return text if len(text) <= longest else text[: longest - 1] + "…"
