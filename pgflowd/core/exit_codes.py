"""
The exit codes of commands (docs/reference/programs.md), and the code that each error leads to.

The dashboard makes the statuses of its answers from them, so a page and a command agree.
"""

from __future__ import annotations

from enum import IntEnum

from pgflowd.errors import AccessDenied, Bug, OutOfReach, PgflowdError, Unreachable, WaitTimeout


class ExitCode(IntEnum):
    """The exit codes of every command."""

    OK = 0
    NO = 1  # the answer is no: run failed, errors found, not healthy; serve: gave up
    USAGE = 2
    NOT_RUNNING = 3  # the daemon
    NOT_FOUND = 4  # run, flow or task
    TIMED_OUT = 5  # --timeout passed
    REFUSED = 6  # --yes or --force is missing, or the state forbids it
    UNREACHABLE = 69  # the database
    BUG = 70
    TRY_LATER = 75  # another daemon has the socket, or it drains
    DENIED = 77  # by the database or the socket
    CONFIG = 78  # the config, or every flow, is wrong: do not start it again unchanged
    INTERRUPTED = 130
    BROKEN_PIPE = 141


_BY_CODE = {
    "E305": ExitCode.DENIED,
    "E403": ExitCode.USAGE,
    "E404": ExitCode.USAGE,
    "E409": ExitCode.NOT_FOUND,
    "E410": ExitCode.REFUSED,
    "E411": ExitCode.REFUSED,
    "E414": ExitCode.NOT_RUNNING,
    "E415": ExitCode.NOT_FOUND,
    "E416": ExitCode.USAGE,
    "E420": ExitCode.REFUSED,
    "E421": ExitCode.REFUSED,
    "E422": ExitCode.NOT_FOUND,
    "E423": ExitCode.REFUSED,
    "E424": ExitCode.USAGE,
    "E429": ExitCode.USAGE,
    "E506": ExitCode.USAGE,
    "E507": ExitCode.NOT_FOUND,
    "E511": ExitCode.USAGE,
    "E510": ExitCode.TRY_LATER,
}
_BY_CLASS = {
    WaitTimeout: ExitCode.TIMED_OUT,
    OutOfReach: ExitCode.USAGE,
    AccessDenied: ExitCode.DENIED,
    Unreachable: ExitCode.UNREACHABLE,
    Bug: ExitCode.BUG,
}
_BY_GROUP = {"E4": ExitCode.NO, "E9": ExitCode.BUG}


def exit_for(error: PgflowdError) -> ExitCode:
    """Return the exit code for an error: by its class, its code or the group of its code."""
    for kind, exit_code in _BY_CLASS.items():
        if isinstance(error, kind):
            return exit_code
    return _BY_CODE.get(error.code, _BY_GROUP.get(error.code[:2], ExitCode.CONFIG))
