"""
The few connections that requests share, each used by one of them at a time.

Requests are answered by asyncio, and the database is read in threads, by the functions that the
commands call too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import psycopg

from pgflowd.core.redact import one_line
from pgflowd.db import schema
from pgflowd.db.client_connections import IdleConnections
from pgflowd.db.connection import Limits, connect, is_pooled
from pgflowd.errors import AccessDenied, Unreachable

T = TypeVar("T")
Connection = psycopg.Connection[Any]

STATEMENT_S = 2.0  # no page needs longer; a database that does is too busy for pages
FREE_S = 2.0  # so long a request waits for a connection
_LIMITS = Limits(connect_s=5.0, statement_s=STATEMENT_S, lock_s=1.0)
NAME = "pgflowd web"


class NoFreeConnection(Unreachable):
    """All connections are in use."""


class TooSlow(Unreachable):
    """A statement has waited, or worked, for longer than a page may."""


_IN_THE_WAY = (
    psycopg.errors.QueryCanceled,
    psycopg.errors.LockNotAvailable,
    psycopg.errors.DeadlockDetected,
)


class Connections:
    """At most `most` connections to one database, opened when they are needed."""

    def __init__(self, url: str, most: int, *, read_only: bool) -> None:
        self._url = url
        self._is_read_only = read_only
        self._places = asyncio.Semaphore(most)
        self._idle: IdleConnections[Connection] = IdleConnections()

    async def call(self, work: Callable[[Connection], T]) -> T:
        """Return what `work` returns; it is called with a connection, in a thread."""
        try:
            await asyncio.wait_for(self._places.acquire(), FREE_S)
        except TimeoutError:
            text = f"no connection to the database was free for {FREE_S:g} seconds"
            raise NoFreeConnection(text, next="try again in a moment") from None
        try:
            return await asyncio.to_thread(self._work, work)
        except _IN_THE_WAY as error:
            text = f"the database did not answer in time: {one_line(str(error), 200)}"
            next = "try again in a moment; `pgflowd doctor database` names old transactions"
            raise TooSlow(text, next=next) from None
        finally:
            self._places.release()

    def _work(self, work: Callable[[Connection], T]) -> T:
        conn = self._idle.take() or self.open()
        try:
            result = work(conn)
        except BaseException:
            if not (conn.autocommit and not conn.broken and self._idle.keep(conn)):
                conn.pgconn.finish()
            raise
        if not self._idle.keep(conn):
            conn.pgconn.finish()
        return result

    def open(self) -> Connection:
        """Open a connection; the caller closes it. E302 or E303 for another schema than ours."""
        conn = connect(self._url, name=NAME, limits=_LIMITS)
        try:
            with suppress(AccessDenied):  # of a role that may not see which it is
                schema.require(conn)
        except BaseException:
            conn.pgconn.finish()
            raise
        if self._is_read_only and not is_pooled(conn):  # a pooler would pass it on to others
            conn.execute("set default_transaction_read_only = on")
        return conn

    def close(self) -> None:
        """Close those that nobody uses."""
        self._idle.closed = True
        while conn := self._idle.take():
            conn.pgconn.finish()
