"""
Calls: what is asked of the database, apart from who asks and how.

A `Call` is SQL, its parameters, and how its rows are read. `run` performs one on a plain
connection, `run_async` on an asyncio one. `all_together` performs several in one pipeline: one
round trip and, on a connection in autocommit, one transaction, since what lies between two syncs
is one. JSON comes back as the bytes the server sent; nobody parses what is only passed on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import psycopg
from psycopg.adapt import Buffer, Loader
from psycopg.rows import tuple_row

from pgflowd.db.connection import translated

A = TypeVar("A")
Rows = Sequence[tuple[Any, ...]]
SyncConnection = psycopg.Connection[Any]
AsyncConnection = psycopg.AsyncConnection[Any]


@dataclass(frozen=True)
class Query(Generic[A]):
    """One statement, and how to read its answer."""

    sql: str
    params: Sequence[Any]
    read: Callable[[Rows], A]


def execute(conn: SyncConnection, call: Query[A]) -> A:
    """Perform the call and return its answer."""
    with translated(conn), psycopg.Cursor(conn, row_factory=tuple_row) as cursor:
        _leave_json_alone(cursor)
        cursor.execute(call.sql.encode(), call.params)
        return call.read(cursor.fetchall())


async def execute_async(conn: AsyncConnection, call: Query[A]) -> A:
    """Do what `run` does, for those who await."""
    with translated(conn):
        async with psycopg.AsyncCursor(conn, row_factory=tuple_row) as cursor:
            _leave_json_alone(cursor)
            await cursor.execute(call.sql.encode(), call.params)
            return call.read(await cursor.fetchall())


def execute_together(conn: SyncConnection, calls: Sequence[Query[Any]]) -> list[Any]:
    """Perform all, in this order, in one round trip and one transaction."""
    with translated(conn), ExitStack() as stack:
        cursors = [stack.enter_context(conn.cursor()) for _ in calls]
        with conn.pipeline():
            for cursor, call in zip(cursors, calls, strict=True):
                _leave_json_alone(cursor)
                cursor.execute(call.sql.encode(), call.params)
        return [call.read(cursor.fetchall()) for cursor, call in zip(cursors, calls, strict=True)]


async def execute_together_async(conn: AsyncConnection, calls: Sequence[Query[Any]]) -> list[Any]:
    """Do what `all_together` does, for those who await; a single call needs no pipeline."""
    if len(calls) == 1:
        return [await execute_async(conn, calls[0])]
    with translated(conn):
        async with AsyncExitStack() as stack:
            cursors = [await stack.enter_async_context(conn.cursor()) for _ in calls]
            async with conn.pipeline():
                for cursor, call in zip(cursors, calls, strict=True):
                    _leave_json_alone(cursor)
                    await cursor.execute(call.sql.encode(), call.params)
            pairs = zip(cursors, calls, strict=True)
            return [call.read(await cursor.fetchall()) for cursor, call in pairs]


def only(rows: Rows) -> Any:
    """Read the one value of a one-row answer."""
    return rows[0][0]


class _Untouched(Loader):
    """Hands JSON on as the server wrote it."""

    def load(self, data: Buffer) -> bytes:
        return bytes(data)


def _leave_json_alone(cursor: psycopg.Cursor[Any] | psycopg.AsyncCursor[Any]) -> None:
    cursor.adapters.register_loader("jsonb", _Untouched)
