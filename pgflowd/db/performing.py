# Made from pgflowd/db/performing_async.py by `make clients`; do not edit.
"""
Executes operations on connections of psycopg and of other libraries.

What an operation decides is decided in it; here is only how each of its steps is done.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, TypeVar

import psycopg
from psycopg import sql

from pgflowd.core.documents.runs import TimelineEntry
from pgflowd.db.client_connections import (
    Connection,
    Library,
    Open,
    for_django,
    for_sqlalchemy,
    pool_of,
    refuse_other_server,
    translated_foreign,
)
from pgflowd.db.connection import is_pooled, translated
from pgflowd.db.following import Follower
from pgflowd.db.operations import Hears, Listen, Notices, Operation, Step
from pgflowd.db.query import Query, Rows, Together, execute, execute_together
from pgflowd.errors import Unreachable

T = TypeVar("T")


class ForeignConnection:
    """A connection of another library, or the one that a session of it has."""

    def __init__(self, connection: Any, library: Library) -> None:
        self._connection, self._library = connection, library
        self.pool = pool_of(connection)

    def rows(self, query: Query[Any]) -> Rows:
        if self._library is Library.DJANGO:
            with self._connection.cursor() as cursor:
                cursor.execute(*for_django(query))
                return [tuple(row) for row in cursor.fetchall()]
        statement, values = for_sqlalchemy(query, self._connection.dialect.driver)
        return [tuple(row) for row in self._connection.execute(statement, values)]


def foreign(database: Any, library: Library) -> ForeignConnection:
    """The connection that an object of another library is, or has."""
    if library is Library.DJANGO:
        refuse_other_server(database.vendor)
        return ForeignConnection(database, library)
    is_session = not hasattr(database, "dialect")
    connection = database.connection() if is_session else database
    refuse_other_server(connection.dialect.name)
    return ForeignConnection(connection, library)


def run_sync(conn: Connection | ForeignConnection, operation: Operation[T]) -> T:
    """Execute an operation and return its result."""
    try:
        step = next(operation)
        while True:
            try:
                result = _execute(conn, step)
            except Exception as error:
                step = operation.throw(error)
            else:
                step = operation.send(result)
    except StopIteration as end:
        value: T = end.value
        return value


def _execute(conn: Connection | ForeignConnection, step: Step) -> Any:
    if isinstance(conn, ForeignConnection):
        assert isinstance(step, Query), step  # nobody waits in the transaction of an application
        with translated_foreign():
            return step.read(conn.rows(step))
    if isinstance(step, Query):
        return execute(conn, step)
    if isinstance(step, Together):
        return execute_together(conn, step.queries)
    if isinstance(step, Hears):
        return not is_pooled(conn)
    with translated(conn):
        if isinstance(step, Notices):
            notices = []
            for notice in conn.notifies(timeout=step.max_s, stop_after=1):
                notices.append(notice)
            return notices
        if isinstance(step, Listen):
            for verb, names in (("unlisten", step.others), ("listen", step.channels)):
                for name in names:
                    conn.execute(sql.SQL(f"{verb} {{}}").format(sql.Identifier(name)))
    return None


def follow_sync(
    follower: Follower[Any], opened: Open | None, conn: Connection | None = None
) -> Iterator[TimelineEntry]:
    """
    Yield what happens in runs until they have ended. Raises WaitTimeout, NotFound.

    It begins with `conn`, and closes it; a connection that is lost is opened again.
    """
    try:
        while follower.open:
            try:
                if conn is None and opened is not None:
                    conn = opened()
                assert conn is not None
                entries = run_sync(conn, follower.next())
            except (Unreachable, psycopg.OperationalError) as error:
                if conn is not None:
                    conn.close()
                conn = None
                if opened is None:
                    raise
                time.sleep(follower.reconnect_s(error))
                continue
            yield from entries
    finally:
        if conn is not None:
            conn.close()
