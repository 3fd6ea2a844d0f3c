"""
Play: performs scripts, on plain connections and on asyncio ones, and keeps connections.

What a script yields is done, and what comes of it, answer or error, goes back into it. Nothing
is decided here.
"""

from __future__ import annotations

import os
import selectors
import time
from typing import Any, Generic, TypeVar
from uuid import UUID

import psycopg
from psycopg import sql

from pgflowd.core.backoff import doubled_s
from pgflowd.core.documents.runs import Run
from pgflowd.db import client_steps, runs
from pgflowd.db.client_steps import Listen, Nap, Operation, Operations, Unlisten
from pgflowd.db.connection import is_pooled, translated
from pgflowd.db.query import Query, execute, execute_async
from pgflowd.errors import Unreachable

Connection = psycopg.Connection[Any]
AsyncConnection = psycopg.AsyncConnection[Any]
AnyConnection = TypeVar("AnyConnection", Connection, AsyncConnection)
T = TypeVar("T")

MOST_KEPT = 4
_Selector = getattr(selectors, "PollSelector", selectors.DefaultSelector)  # needs no descriptor
SHORTEST_NAP_S, LONGEST_NAP_S = 0.1, 5.0  # while the database is gone


class Connections(Generic[AnyConnection]):
    """Connections that wait for the next call. List operations are atomic among threads.

    After a fork they are the parent's: the child forgets them, without a word to the server.
    """

    def __init__(self) -> None:
        self.idle: list[AnyConnection] = []
        self.closed = False
        self._process = os.getpid()

    def take(self) -> AnyConnection | None:
        """A connection whose other end is still there, if one is idle."""
        if self._process != os.getpid():
            self.idle, self._process = [], os.getpid()
        while True:
            try:
                conn = self.idle.pop()
            except IndexError:
                return None
            if _is_alive(conn):
                return conn
            conn.pgconn.finish()

    def keep(self, conn: AnyConnection) -> bool:
        """Keep a connection for later, unless there is no use for it."""
        is_fine = not self.closed and not conn.closed and not conn.broken
        if is_fine and len(self.idle) < MOST_KEPT:
            self.idle.append(conn)
            return True
        return False


class Patience:
    """
    A wait for the end of a run, which outlives its connection: when to try again, until when.

    A database that was never reached is not waited for: its URL may be wrong.
    """

    def __init__(self, run_id: UUID, timeout_s: float | None, *, has_reached: bool = False) -> None:
        self._run_id, self._timeout_s = run_id, timeout_s
        self._until = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        self._has_reached = has_reached
        self._nap_s = SHORTEST_NAP_S

    def script(self) -> Operations[Run]:
        self._has_reached = True  # a script begins when there is a connection for it
        left_s = None if self._timeout_s is None else max(self._until - time.monotonic(), 0.0)
        return (yield from client_steps.wait(self._run_id, self._timeout_s, left_s))

    def nap_s(self, error: Unreachable) -> float:
        """How long to wait before another try; raise where there is none."""
        if not self._has_reached:
            raise error
        if time.monotonic() >= self._until:
            raise client_steps.given_up(self._run_id, self._timeout_s) from error
        nap_s = self._nap_s
        self._nap_s = doubled_s(nap_s, SHORTEST_NAP_S, LONGEST_NAP_S)
        return max(min(nap_s, self._until - time.monotonic()), 0.0)


def run_sync(conn: Connection, script: Operations[T]) -> T:
    """Perform a script on a plain connection."""
    answer: Any = None
    error: Exception | None = None
    try:
        while True:
            step = script.send(answer) if error is None else script.throw(error)
            answer, error = None, None
            try:
                answer = _perform(conn, step)
            except Exception as trouble:
                error = trouble
    except StopIteration as end:
        result: T = end.value
        return result


def _perform(conn: Connection, step: Operation) -> Any:
    if isinstance(step, Query):
        return execute(conn, step)
    with translated(conn):
        if isinstance(step, Listen) and not is_pooled(conn):
            conn.execute(_listen(step))
        elif isinstance(step, Unlisten) and not is_pooled(conn):
            conn.execute("unlisten *")
        elif isinstance(step, Nap):
            until = time.monotonic() + step.longest_s
            while (left_s := until - time.monotonic()) > 0:
                for notice in conn.notifies(timeout=left_s, stop_after=1):
                    if runs.tells_the_end(notice.payload):
                        return None
    return time.monotonic()


async def run_async(conn: AsyncConnection, script: Operations[T]) -> T:
    """Perform a script on an asyncio connection."""
    answer: Any = None
    error: Exception | None = None
    try:
        while True:
            step = script.send(answer) if error is None else script.throw(error)
            answer, error = None, None
            try:
                answer = await _perform_async(conn, step)
            except Exception as trouble:
                error = trouble
    except StopIteration as end:
        result: T = end.value
        return result


async def _perform_async(conn: AsyncConnection, step: Operation) -> Any:
    if isinstance(step, Query):
        return await execute_async(conn, step)
    with translated(conn):
        if isinstance(step, Listen) and not is_pooled(conn):
            await conn.execute(_listen(step))
        elif isinstance(step, Unlisten) and not is_pooled(conn):
            await conn.execute("unlisten *")
        elif isinstance(step, Nap):
            until = time.monotonic() + step.longest_s
            while (left_s := until - time.monotonic()) > 0:
                async for notice in conn.notifies(timeout=left_s, stop_after=1):
                    if runs.tells_the_end(notice.payload):
                        return None
    return time.monotonic()


def _listen(step: Listen) -> sql.Composed:
    return sql.SQL("listen {}").format(sql.Identifier(step.channel))


def _is_alive(conn: Connection | AsyncConnection) -> bool:
    """Whether the server still waits for us: to an idle connection it says nothing but goodbye."""
    if conn.closed:
        return False
    with _Selector() as selector:
        selector.register(conn.pgconn.socket, selectors.EVENT_READ)
        return not selector.select(timeout=0)
