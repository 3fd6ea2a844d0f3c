"""
Reads in the text of a traceback where the user's own code was, for screens.

Such a text is a traceback of Python, whose last call stands last, or a stack that `faulthandler`
wrote as a runner was killed, whose last call stands first. Of exceptions that follow from one
another the last one counts. Calls of libraries, of Python and of pgflowd are left out.
"""

from __future__ import annotations

import re
from typing import NamedTuple

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
        found = _calls(f"{_above_the_runner(_current(thread))}\n{task}")[::-1]
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


def _current(stack: str) -> str:
    """The part of a stack about the thread that got the signal."""
    return stack.partition("Current thread")[2].partition("\n\n")[0] or stack
