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


_CODES = {
    ExitCode.USAGE: ("E403", "E404", "E416", "E424", "E429", "E506", "E511"),
    ExitCode.NOT_RUNNING: ("E414",),
    ExitCode.NOT_FOUND: ("E409", "E415", "E422", "E507"),
    ExitCode.REFUSED: ("E410", "E411", "E420", "E421", "E423"),
    ExitCode.TRY_LATER: ("E510",),
    ExitCode.DENIED: ("E305",),
}
_BY_CODE = {code: exit_code for exit_code, codes in _CODES.items() for code in codes}
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
