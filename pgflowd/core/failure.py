"""
Failure: what an exception of a handler becomes in a report.

An ordinary exception is a failed attempt, and the step's options say what follows. `Fail` and
E405 (a skipped dep without default) want no retry, `RetryAfter` wants the next attempt at a time
of its own; so do they in an exception group, as a `TaskGroup` raises one, whose text names what
is in it. Texts are cleaned of secrets and of what PostgreSQL cannot store, and cut.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from pgflowd.core.redact import redact
from pgflowd.errors import PgflowdError

LONGEST_TYPE = 200
LONGEST_MESSAGE = 4000
LONGEST_DELAY_S = 2**31 - 1  # where SQL's int ends, in 68 years

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


class Fail(Exception):
    """Raised by a handler: the task fails for good, without further attempts."""


class RetryAfter(Exception):
    """Raised by a handler: this attempt failed, the next one may start in `delay` seconds.

    If no attempts are left, it is the last failure like any other.
    """

    def __init__(self, delay: float | timedelta, reason: str = "") -> None:
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else float(delay)
        if not math.isfinite(seconds) or seconds < 0:
            raise ValueError(f"RetryAfter needs seconds, 0 or more, and got {delay!r}")
        self.delay_s = min(seconds, LONGEST_DELAY_S)
        super().__init__(reason or f"to be retried in {seconds:g} s")


@dataclass(frozen=True)
class Failure:
    """A failed attempt, ready to be reported."""

    error_type: str
    message: str
    retry: bool = True
    delay_s: float | None = None


def failure_of(error: BaseException) -> Failure:
    """Describe an exception that a handler raised."""
    if isinstance(error, BaseExceptionGroup):
        return _failure_of_group(error)
    name = type(error).__name__
    text = _text_of(error)
    if isinstance(error, PgflowdError):
        return Failure(name, clean(text, LONGEST_MESSAGE), retry=error.code != "E405")
    if isinstance(error, Fail):
        return Failure(name, clean(text or "Fail", LONGEST_MESSAGE), retry=False)
    if isinstance(error, RetryAfter):
        return Failure(name, clean(text, LONGEST_MESSAGE), delay_s=error.delay_s)
    message = f"{name}: {text}" if text else name
    return Failure(clean(name, LONGEST_TYPE), clean(message, LONGEST_MESSAGE))


def _failure_of_group(group: BaseExceptionGroup[BaseException]) -> Failure:
    """The first `Fail` in it decides, or the first `RetryAfter`; else it is an ordinary one."""
    inside = [failure_of(error) for error in _leaves(group)]
    name = clean(type(group).__name__, LONGEST_TYPE)
    text = f"{name}: {group.message}: " + "; ".join(failure.message for failure in inside)
    first = min(inside, key=lambda failure: (failure.retry, failure.delay_s is None))
    return Failure(name, clean(text, LONGEST_MESSAGE), first.retry, first.delay_s)


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    pending = list(group.exceptions)
    for error in pending:  # to which groups within add theirs
        if isinstance(error, BaseExceptionGroup):
            pending += error.exceptions
        else:
            yield error


def clean(text: str, longest: int) -> str:
    """The text without NUL, lone surrogates and what looks like a secret, and at most so long."""
    # cut twice: what the first cut tears apart at its end, the second one drops
    text = redact(_UNSTORABLE.sub("\ufffd", text[: 2 * longest]))
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as trouble:
        return f"(its text cannot be had: {type(trouble).__name__})"
