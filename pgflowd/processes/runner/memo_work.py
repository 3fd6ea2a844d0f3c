"""
Saves memos on the connection of their handler, so that what a memo's function wrote there is
committed together with its result, or not at all.

What the handler itself wrote before, in the same transaction, is committed too. A savepoint marks
where the memo began, so that a function which fails undoes its own work alone. As in
`runner.completion`, a connection object of our own does all this, whatever the handler did to its.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from pgflowd.db.query import Query, execute, only
from pgflowd.errors import RunError
from pgflowd.processes.runner.completion import (
    NO_ROLE,
    Connection,
    has_open_transaction,
    look_at_session,
    set_role,
)
from pgflowd.processes.runner.sessions import cut_off

LOCKED_NAP_S = 0.02  # between two tries while another session has the task

_HAS_WRITTEN = "select pg_current_xact_id_if_assigned() is not null"


class MemoWork:
    """A connection of a handler, as its memos use it."""

    def __init__(self, conn: Connection) -> None:
        self.conn = conn
        self._ours = psycopg.Connection[Any](conn.pgconn)
        self._ours.prepare_threshold = None  # the handler's object has used the names

    def end(self) -> None:
        """The task ends; its connection is ended elsewhere."""
        cut_off(self._ours)

    def mark(self) -> bool:
        """Mark where a memo begins, if a transaction is open; return whether that is so."""
        if self._status() != TransactionStatus.INTRANS:
            return False
        self._ours.execute("savepoint pgflowd_memo")
        return True

    def undo(self, *, is_marked: bool) -> None:
        """Undo what the function of a memo did; all, if it has ended the transaction before it."""
        if self._status() == TransactionStatus.IDLE:
            return
        with contextlib.suppress(psycopg.Error):  # it is lost: the server undoes it
            if is_marked:
                with contextlib.suppress(psycopg.errors.InvalidSavepointSpecification):
                    self._ours.execute("rollback to savepoint pgflowd_memo")
                    return
            self._ours.rollback()

    def save(self, save: Query[bool], ends: float, is_cancelled: Callable[[], bool]) -> bool:
        """Save by this query, and commit; return False if nothing was written here."""
        if not self._has_written() or not has_open_transaction(self.conn):
            return False
        session = execute(self._ours, look_at_session(ends))
        if session.role != NO_ROLE:
            execute(self._ours, set_role(NO_ROLE))
        while not execute(self._ours, save):
            if is_cancelled():
                raise RunError("the task is to end, and another session has it", code="E411")
            time.sleep(LOCKED_NAP_S)
        if session.role != NO_ROLE:  # triggers that were deferred to the commit expect it
            execute(self._ours, set_role(session.role))
        self._ours.commit()
        return True

    def _has_written(self) -> bool:
        """Whether the open transaction has; where that cannot be asked, it may have."""
        status = self._status()
        if status != TransactionStatus.INTRANS:
            return status != TransactionStatus.IDLE
        return bool(execute(self._ours, Query(_HAS_WRITTEN, (), only)))

    def _status(self) -> int:
        closed = self.conn.closed
        return TransactionStatus.IDLE if closed else self.conn.pgconn.transaction_status
