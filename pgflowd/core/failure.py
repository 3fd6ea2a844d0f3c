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
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from pgflowd.core.redact import redact
from pgflowd.core.settings.values import parse_duration
from pgflowd.errors import PgflowdError

MAX_TYPE_CHARS = 200  # far above any class name
MAX_MESSAGE_CHARS = 4000  # enough for people, and small in the tables and the log
MAX_TRACEBACK_CHARS = 16_000
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
    pending, inside = list(group.exceptions), list[Failure]()
    for error in pending:  # grows while it is read: each group inside adds its exceptions
        if isinstance(error, BaseExceptionGroup):
            pending += error.exceptions
        else:
            inside.append(failure_of(error, is_last=is_last))
    name = clean(type(group).__name__, MAX_TYPE_CHARS)
    text = f"{name}: {group.message}: " + "; ".join(failure.message for failure in inside)
    first = min(inside, key=lambda failure: (failure.retry, failure.delay_s is None))
    is_unspent = all(failure.at_most_s is not None for failure in inside)
    at_most_s = first.at_most_s if is_unspent else None
    return Failure(name, clean(text, MAX_MESSAGE_CHARS), first.retry, first.delay_s, at_most_s)


def clean(text: str, longest: int) -> str:
    """The text without NUL, lone surrogates and likely secrets, cut to `longest` characters."""
    # cut twice: a secret that the first cut splits at the end is dropped by the second
    text = redact(_UNSTORABLE.sub("\ufffd", text[: 2 * longest]))
    return text if len(text) <= longest else text[: longest - 1] + "…"


# Reads in the text of a traceback where the user's own code was, for screens.
#
# Such a text is a traceback of Python, whose last call stands last, or a stack that `faulthandler`
# wrote as a runner was killed, whose last call stands first. Of exceptions that follow from one
# another the last one counts. Calls of libraries, of Python and of pgflowd are left out.
MOST_CALLS = 3  # that a screen shows of a failure while a run is followed

_CALL = re.compile(
    r'^(?P<indent>[ |]*?)  File "(?P<file>.+)", line (?P<line>\d+|\?\?\?),? in (?P<name>.+)$'
    r"(?:\n(?P=indent)    (?!\[Previous line)(?P<code>\S.*))?",
    re.M,
)
_NEXT_EXCEPTION = re.compile(
    r"^[ |]*(?:During handling of the above exception, another exception occurred"
    r"|The above exception was the direct cause of the following exception):$",
    re.M,
)
_STACK = "(most recent call first)"
_AWAITED = "\nCurrent task "  # what the task of an async handler awaits
_NOT_THEIRS = re.compile(
    r"/lib/python\d|/(?:site|dist)-packages/|/pgflowd/(processes|host|core)/|^<"
)
_INSTALLED = re.compile(r"/(?:site|dist)-packages/(?!pgflowd/(processes|host|core)/)")
_RUNNER = re.compile(r'^  File ".*/pgflowd/processes/runner/\w+\.py"', re.M)  # it calls handlers


class UserCall(NamedTuple):
    """A call in the user's own code, and its line of code where the text has it."""

    file: str
    line: str
    name: str
    code: str | None

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line} in {self.name}"


def user_calls(text: str | None) -> list[UserCall]:
    """
    The calls in the user's own code, the last one at the end. Of a flow that is installed like a
    library it is the handler alone.
    """
    text = text or ""
    if _STACK in text:
        thread, _, task = text.partition(_AWAITED)
        # the part about the thread that got the signal
        current = thread.partition("Current thread")[2].partition("\n\n")[0]
        found = _calls(f"{_above_the_runner(current or thread)}\n{task}")[::-1]
    else:
        found = _calls(_NEXT_EXCEPTION.split(text)[-1])
    own = [call for call in found if not _NOT_THEIRS.search(call.file)]
    return own or [call for call in found if _INSTALLED.search(call.file)][:1]


def place_of(text: str | None) -> str:
    """Where in the user's own code it was: `flows/analyze.py:31 in summary`, or ""."""
    calls = user_calls(text)
    return calls[-1].place if calls else ""


def last_calls(text: str | None, error: str) -> list[UserCall]:
    """The last calls, as far as they say more than the text of the error."""
    calls = user_calls(text)[-MOST_CALLS:]
    return [] if len(calls) == 1 and not calls[0].code and calls[0].place in error else calls


def without_the_runner(stack: str) -> str:
    """A stack without the calls that led to the handler, up to the start of the daemon."""
    thread, awaited, task = stack.partition(_AWAITED)
    return f"{_above_the_runner(thread)}{awaited}{task}"


def _above_the_runner(stack: str) -> str:
    ours = _RUNNER.search(stack)
    return stack if ours is None else stack[: ours.start()]


def _calls(text: str) -> list[UserCall]:
    """All calls, each once: what a coroutine awaits also stands on the stack while it runs."""
    found = (
        UserCall(*match.group("file", "line", "name", "code")) for match in _CALL.finditer(text)
    )
    return list(dict.fromkeys(found))


# How a failed use of the database is handled; `db.connection.failure_of` decides which applies.
#
# the SQLSTATEs after which the same statement may succeed later, or their beginnings
RETRY_STATES = ("08", "25006", "25P03", "40", "53", "55006", "55P03", "57", "58", "XX")


class DatabaseFailure(StrEnum):
    """The value is the label `kind` of the metric database_errors."""

    RETRY = "again"  # try again soon
    ALERT = "loud"  # try again soon, and log an error, because a person has to act
    BROKEN = "fault"  # the installation is wrong: try again, but rarely
    GONE = "gone"  # the worker's row or its flow is gone
    SCHEMA = "core"  # schema pgflow has changed


# What an approval is: the output of its step, or the failure that a rejection is. Pure.
#
# An approval is a signal with the name of its step. Its payload is {"approved", "by", "note"}. The
# SQL sees an ordinary signal and an ordinary step.
APPROVAL = "approval"  # why its task waits


def is_answer(payload: Any) -> bool:
    """Whether a signal approves or rejects; somebody may have sent another one by this name."""
    return isinstance(payload, dict) and isinstance(payload.get("approved"), bool)


def output_of(answer: dict[str, Any]) -> dict[str, Any]:
    """The output of the step; `Fail` for a rejection."""
    by, note = answer.get("by"), answer.get("note") or ""
    if not answer["approved"]:
        raise Fail(": ".join(filter(None, [f"rejected by {by or 'somebody'}", str(note)])))
    return {"approved": True, "by": by, "note": note}
