"""
Executes operations on connections of psycopg and of other libraries.

What an operation decides is decided in it; here is only how each of its steps is done.
"""

# `make clients` makes performing.py from this module, for plain code.  # async

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, TypeVar

import psycopg
from psycopg import sql

from pgflowd.core.documents.runs import TimelineEntry
from pgflowd.db.client_connections import (
    AsyncConnection,
    AsyncOpen,
    Library,
    # sync: for_django,
    for_sqlalchemy,
    pool_of,
    refuse_other_server,
    translated_foreign,
    with_marks,
)
from pgflowd.db.connection import is_pooled, translated
from pgflowd.db.following import Follower
from pgflowd.db.operations import Hears, Listen, Notices, Operation, Step
from pgflowd.db.query import Query, Rows, Together, execute_async, execute_together_async
from pgflowd.errors import Unreachable

T = TypeVar("T")


class AsyncForeignConnection:
    """A connection of another library, or the one that a session of it has."""

    def __init__(self, connection: Any, library: Library) -> None:
        self._connection, self._library = connection, library
        self.pool = pool_of(connection)

    async def rows(self, query: Query[Any]) -> Rows:
        # sync: if self._library is Library.DJANGO:
        # sync:     with self._connection.cursor() as cursor:
        # sync:         cursor.execute(*for_django(query))
        # sync:         return [tuple(row) for row in cursor.fetchall()]
        if self._library is Library.ASYNCPG:  # async
            text = with_marks(query.sql, lambda nr: f"${nr + 1}")  # async
            found = await self._connection.fetch(text, *query.params)  # async
            return [tuple(row) for row in found]  # async
        statement, values = for_sqlalchemy(query, self._connection.dialect.driver)
        return [tuple(row) for row in await self._connection.execute(statement, values)]


async def foreign_async(database: Any, library: Library) -> AsyncForeignConnection:
    """The connection that an object of another library is, or has."""
    # sync: if library is Library.DJANGO:
    # sync:     refuse_other_server(database.vendor)
    # sync:     return ForeignConnection(database, library)
    if library is Library.ASYNCPG:  # async
        return AsyncForeignConnection(database, library)  # async
    is_session = not hasattr(database, "dialect")
    connection = await database.connection() if is_session else database
    refuse_other_server(connection.dialect.name)
    return AsyncForeignConnection(connection, library)


async def run_async(conn: AsyncConnection | AsyncForeignConnection, operation: Operation[T]) -> T:
    """Execute an operation and return its result."""
    try:
        step = next(operation)
        while True:
            try:
                result = await _execute_async(conn, step)
            except Exception as error:
                step = operation.throw(error)
            else:
                step = operation.send(result)
    except StopIteration as end:
        value: T = end.value
        return value


async def _execute_async(conn: AsyncConnection | AsyncForeignConnection, step: Step) -> Any:
    if isinstance(conn, AsyncForeignConnection):
        assert isinstance(step, Query), step  # nobody waits in the transaction of an application
        with translated_foreign():
            return step.read(await conn.rows(step))
    if isinstance(step, Query):
        return await execute_async(conn, step)
    if isinstance(step, Together):
        return await execute_together_async(conn, step.queries)
    if isinstance(step, Hears):
        return not is_pooled(conn)
    with translated(conn):
        if isinstance(step, Notices):
            notices = []
            async for notice in conn.notifies(timeout=step.max_s, stop_after=1):
                notices.append(notice)
            return notices
        if isinstance(step, Listen):
            for verb, names in (("unlisten", step.others), ("listen", step.channels)):
                for name in names:
                    await conn.execute(sql.SQL(f"{verb} {{}}").format(sql.Identifier(name)))
    return None


async def follow_async(
    follower: Follower[Any], opened: AsyncOpen | None, conn: AsyncConnection | None = None
) -> AsyncIterator[TimelineEntry]:
    """
    Yield what happens in runs until they have ended. Raises WaitTimeout, NotFound.

    It begins with `conn`, and closes it; a connection that is lost is opened again.
    """
    try:
        while follower.open:
            try:
                if conn is None and opened is not None:
                    conn = await opened()
                assert conn is not None
                entries = await run_async(conn, follower.next())
            except (Unreachable, psycopg.OperationalError) as error:
                if conn is not None:
                    await conn.close()
                conn = None
                if opened is None:
                    raise
                await asyncio.sleep(follower.reconnect_s(error))
                continue
            # sync: yield from entries
            for entry in entries:  # async
                yield entry  # async
    finally:
        if conn is not None:
            await conn.close()
