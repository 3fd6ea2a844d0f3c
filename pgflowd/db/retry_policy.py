"""
Meaning: what an error of a whole call means to a worker: try again, shout, or leave.

SQLSTATE decides, not psycopg's class: 54000 is an OperationalError, 25006 an InternalError.
The words are those of `core.worker.events.Broken`.
"""

from __future__ import annotations

import asyncio

import psycopg

from pgflowd.core.redact import one_line, redact
from pgflowd.core.worker.reporting import AGAIN_STATES
from pgflowd.errors import AccessDenied, DatabaseError, NotFound, PgflowdError, Unreachable

LOUD_STATES = ("28", "3D")


def meaning_of(error: BaseException) -> tuple[str, str]:
    """Return the meaning, and the text for the log."""
    state = sqlstate_of(error)
    text = one_line(redact(str(error) or type(error).__name__), 1000)
    if isinstance(error, NotFound):
        return "gone", text
    if isinstance(error, Unreachable):
        return "loud" if _is_loud(state, text) else "again", text
    if isinstance(error, AccessDenied):
        return "fault", text
    if isinstance(error, DatabaseError):
        return "core" if error.code == "E307" else "fault", text
    if isinstance(error, PgflowdError):
        return "fault", text
    if isinstance(error, OSError | asyncio.CancelledError | TimeoutError):
        return "again", text
    if state is None:
        return "again" if isinstance(error, psycopg.Error) else "fault", text
    return "again" if state.startswith(AGAIN_STATES) else "fault", text


def sqlstate_of(error: BaseException | None) -> str | None:
    """The SQLSTATE of an error, or of what caused it."""
    while error is not None:
        if isinstance(error, psycopg.Error) and error.sqlstate:
            return error.sqlstate
        error = error.__cause__ or error.__context__
    return None


def _is_loud(state: str | None, text: str) -> bool:
    said = ("authentication failed", "no pg_hba.conf entry", "does not exist")
    return (state or "").startswith(LOUD_STATES) or any(word in text for word in said)
