"""
Classifies the exit of a child, by the table of exit codes in docs/background/supervision.md,
section 1.

A 10, 11 or 78 counts only with its message, so user code that calls `os._exit(78)` parks nothing by
accident. Any other exit that was not asked for is a crash, 0 included. Pure.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from enum import Enum

from pgflowd.core.messages import Failed, FallingAsleep, Leaving

EXIT_ASKED = 0  # ended as asked
EXIT_REPLACE = 10  # after Leaving: the worker row is deprecated or gone, the worker has drained
EXIT_ASLEEP = 11  # after FallingAsleep: a worker without work
EXIT_UNREACHABLE = 69  # of the daemon: the database
EXIT_BUG = 70  # after Failed: a bug in pgflowd
EXIT_CANNOT = 78  # after Failed, and of the daemon: cannot start, and another try would not help

ExitMessage = Failed | Leaving | FallingAsleep


class ExitKind(Enum):
    """The kinds of exits."""

    CRASH = "crash"
    REPLACE = "replace"
    ASLEEP = "asleep"
    CANNOT_START = "cannot start"


@dataclass(frozen=True)
class ChildExit:
    """The exit of a child: its kind, and the reason, for people."""

    kind: ExitKind
    reason: str
    code: str | None = None  # of the error, such as E306

    @property
    def is_crash(self) -> bool:
        return self.kind is not ExitKind.CANNOT_START

    @property
    def is_orderly(self) -> bool:
        """Whether the child ended by itself and left nothing undone."""
        return self.kind in {ExitKind.REPLACE, ExitKind.ASLEEP}

    @property
    def label(self) -> str:
        """The reason as a label of metrics: one of few values, never free text."""
        head = self.reason.split(",")[0].split(":")[0]
        known = ("killed by SIG", "exit code ", "E903", "said nothing", "was not ready")
        return head if head.startswith(known) else "failed"

    def document(self) -> dict[str, str | None]:
        """Return it as the status document has it."""
        return {"code": self.code, "text": self.text}

    @property
    def text(self) -> str:
        """The reason without its code, which stands beside it."""
        return self.reason.removeprefix(f"{self.code} ")


def classify_exit(
    status: int, message: ExitMessage | None, kill_reason: str | None = None
) -> ChildExit:
    """Classify an exit status (or minus the signal) by the message before it, or by the reason
    why the supervisor killed the child."""
    if kill_reason:
        return ChildExit(ExitKind.CRASH, kill_reason)
    if status == EXIT_REPLACE and isinstance(message, Leaving):
        return ChildExit(ExitKind.REPLACE, message.why)
    if status == EXIT_ASLEEP and isinstance(message, FallingAsleep):
        return ChildExit(ExitKind.ASLEEP, "asleep")
    if status == EXIT_CANNOT and isinstance(message, Failed):
        return ChildExit(ExitKind.CANNOT_START, message.text, message.code)
    if status == EXIT_BUG and isinstance(message, Failed):
        return ChildExit(ExitKind.CRASH, message.text, message.code)
    if isinstance(message, Failed):
        return ChildExit(ExitKind.CRASH, f"{describe_status(status)}: {message.text}", message.code)
    return ChildExit(ExitKind.CRASH, describe_status(status))


def describe_status(status: int) -> str:
    """Return how a process ended, for people."""
    if status >= 0:
        return f"exit code {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"killed by {name}" + (", perhaps out of memory" if status == -9 else "")
