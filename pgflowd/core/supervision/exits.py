"""
Verdicts: what the end of a child means.

The table of exit codes in supervision.md, section 1: a 10 or 78 counts only with its message,
so user code that calls `os._exit(78)` parks nothing by accident; everything that was not asked
for is a crash, 0 included. Pure.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from enum import Enum

from pgflowd.core.messages import Failed, Leaving


class ExitKind(Enum):
    """What an exit amounts to."""

    CRASH = "crash"
    REPLACE = "replace"
    CANNOT = "cannot"


@dataclass(frozen=True)
class ChildExit:
    """The end of a child: what it amounts to, and why, for people."""

    kind: ExitKind
    reason: str
    code: str | None = None  # of the error, such as E306


def classify_exit(
    status: int, said: Failed | Leaving | None, killed: str | None = None
) -> ChildExit:
    """Judge an exit status (minus the signal) by what was said before, and why we killed it."""
    if killed:
        return ChildExit(ExitKind.CRASH, killed)
    if status == 10 and isinstance(said, Leaving):
        return ChildExit(ExitKind.REPLACE, said.why)
    if status == 78 and isinstance(said, Failed):
        return ChildExit(ExitKind.CANNOT, said.text, said.code)
    if status == 70 and isinstance(said, Failed):
        return ChildExit(ExitKind.CRASH, said.text, said.code)
    if isinstance(said, Failed):
        return ChildExit(ExitKind.CRASH, f"{described(status)}: {said.text}", said.code)
    return ChildExit(ExitKind.CRASH, described(status))


def described(status: int) -> str:
    """Say how a process ended."""
    if status >= 0:
        return f"exit code {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"killed by {name}" + (", perhaps out of memory" if status == -9 else "")
