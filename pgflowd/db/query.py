"""
Defines `Query`, one statement, and executes queries on plain and asyncio connections.

A query is SQL, its parameters, and a function that reads its rows. `execute_together` sends several
in one pipeline. That is one round trip and, on a connection in autocommit, one transaction, because
all statements between two syncs are one. JSON is returned as the bytes that the server sent,
because most of it is only passed on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, fields
from datetime import datetime
from enum import Enum
from functools import cache
from struct import pack
from types import NoneType
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints
from uuid import UUID

import psycopg
from psycopg.adapt import Buffer, Dumper, Loader
from psycopg.pq import Format
from psycopg.rows import tuple_row

from pgflowd.core.json import decode
from pgflowd.db.connection import translated

A = TypeVar("A")
D = TypeVar("D")
A_co = TypeVar("A_co", covariant=True)
Rows = Sequence[tuple[Any, ...]]
SyncConnection = psycopg.Connection[Any]
AsyncConnection = psycopg.AsyncConnection[Any]
# a moment or seconds from now, as `core.wishes.Moment` has them
MOMENT = "coalesce(%s::timestamptz, clock_timestamp() + make_interval(secs => %s::float8))"


@dataclass(frozen=True)
class Query(Generic[A_co]):
    """One statement, and how to read its rows."""

    sql: str
    params: Sequence[Any]
    read: Callable[[Rows], A_co]

    def then(self, change: Callable[[A_co], D]) -> Query[D]:
        """The query whose result is made from that of this one."""
        return Query(self.sql, self.params, lambda rows: change(self.read(rows)))


@dataclass(frozen=True)
class Together:
    """Queries of an operation that are executed in one round trip; the result of each."""

    queries: Sequence[Query[Any]]


def documents(
    kind: Callable[..., D], source: str, params: Sequence[Any] = (), **columns: str
) -> Query[list[D]]:
    """
    Read the rows of a source as documents, such as `pgflowd.list_runs(%s)` as `ListedRun`.

    Its columns are named as the fields of these, where no other expression is given for one.
    """
    sql = f"select {columns_of(kind, **columns)} from {source}"
    return Query(sql, params, lambda rows: [document_of(kind, row) for row in rows])


def document(
    kind: Callable[..., D], source: str, params: Sequence[Any] = (), **columns: str
) -> Query[D]:
    """Read the only row of a source likewise."""
    sql = f"select {columns_of(kind, **columns)} from {source}"
    return Query(sql, params, lambda rows: document_of(kind, rows[0]))


def columns_of(kind: Any, **columns: str) -> str:
    """The columns of which a document is read."""
    return ", ".join(columns.get(name, name) for name in _field_readers(kind))


def document_of(kind: Callable[..., D], row: Sequence[Any]) -> D:
    """A document from a row that has its columns, and perhaps others behind them."""
    readers = _field_readers(kind).values()
    pairs = zip(readers, row, strict=False)
    return kind(*(value if read is None else read(value) for read, value in pairs))


@cache
def _field_readers(kind: Any) -> dict[str, Callable[[Any], Any] | None]:
    """The fields of a document that `__init__` takes; what makes the value of each of a column."""
    hints = get_type_hints(kind)
    names = getattr(kind, "_fields", None) or [each.name for each in fields(kind)]
    return {name: _reader_of(hints[name]) for name in names}


def _reader_of(hint: Any) -> Callable[[Any], Any] | None:
    """JSON comes as text: unparsed, or cast in a query that drivers of others may execute."""
    if NoneType in get_args(hint):
        [hint] = (each for each in get_args(hint) if each is not NoneType)
    kind = get_origin(hint) or hint
    if kind in (Any, Mapping):
        return decode
    if kind is tuple:
        return tuple
    if read := getattr(kind, "read", None):  # of `Progress`, which others may have written
        return lambda value: read(decode(value))
    if kind is UUID:
        return lambda value: value and uuid_of(value)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return lambda value: None if value is None else kind(value)
    return None


def execute(conn: SyncConnection, query: Query[A]) -> A:
    """Execute the query and return its result."""
    with translated(conn), psycopg.Cursor(conn, row_factory=tuple_row) as cursor:
        _leave_json_unparsed(cursor)
        cursor.execute(query.sql.encode(), query.params)
        return query.read(cursor.fetchall())


async def execute_async(conn: AsyncConnection, query: Query[A]) -> A:
    """Do the same as `execute` with asyncio."""
    with translated(conn):
        async with psycopg.AsyncCursor(conn, row_factory=tuple_row) as cursor:
            _leave_json_unparsed(cursor)
            await cursor.execute(query.sql.encode(), query.params)
            return query.read(await cursor.fetchall())


def execute_together(conn: SyncConnection, queries: Sequence[Query[Any]]) -> list[Any]:
    """Execute all, in this order, in one round trip and one transaction."""
    with translated(conn), _first_error(), ExitStack() as stack:
        cursors = [stack.enter_context(conn.cursor()) for _ in queries]
        with conn.pipeline():
            for cursor, query in zip(cursors, queries, strict=True):
                _leave_json_unparsed(cursor)
                cursor.execute(query.sql.encode(), query.params)
        return [
            query.read(cursor.fetchall()) for cursor, query in zip(cursors, queries, strict=True)
        ]


async def execute_together_async(conn: AsyncConnection, queries: Sequence[Query[Any]]) -> list[Any]:
    """Do the same as `execute_together` with asyncio; a single query needs no pipeline."""
    if len(queries) == 1:
        return [await execute_async(conn, queries[0])]
    with translated(conn), _first_error():
        async with AsyncExitStack() as stack:
            cursors = [await stack.enter_async_context(conn.cursor()) for _ in queries]
            async with conn.pipeline():
                for cursor, query in zip(cursors, queries, strict=True):
                    _leave_json_unparsed(cursor)
                    await cursor.execute(query.sql.encode(), query.params)
            pairs = zip(cursors, queries, strict=True)
            return [query.read(await cursor.fetchall()) for cursor, query in pairs]


@contextmanager
def _first_error() -> Iterator[None]:
    """Raise what PostgreSQL sent, not what the end of the pipeline raised because of it."""
    outer = sys.exception()
    try:
        yield
    except (psycopg.Error, IndexError) as error:  # psycopg's, if the commit's answers come at once
        first: BaseException = error
        while getattr(first, "sqlstate", None) is None:
            if first.__context__ is None or first.__context__ is outer:
                if isinstance(error, psycopg.Error):
                    raise
                text = "PostgreSQL refused to commit; its log says why"
                raise psycopg.OperationalError(text) from error
            first = first.__context__
        raise first from None


def fetch_value(conn: SyncConnection, sql: str, params: Sequence[Any] = ()) -> Any:
    """Execute a statement and return the first value of its first row, or None without a row."""
    row = conn.execute(sql.encode(), params).fetchone()
    return row[0] if row else None


def only(rows: Rows) -> Any:
    """Read the only value of one row."""
    return rows[0][0]


def uuid_of(value: UUID | str) -> UUID:
    """A UUID, which some drivers return as text."""
    return value if isinstance(value, UUID) else UUID(value)


def database_time() -> Query[datetime]:
    """Return the time of the database's clock, which its rows use."""
    return Query("select clock_timestamp()", (), only)


def database_identity() -> Query[str]:
    """What tells databases with our schema apart: two names may mean one, and one name two.

    The system identifier would, too, but not every managed server shows it.
    """
    return Query(_IDENTITY, (), only)


_IDENTITY = """
select database.oid || '/' || (select min(extract(epoch from history.applied_at))
                                 from pgflowd.schema_history as history)
  from pg_catalog.pg_database as database where database.datname = current_database()
"""


class Texts(tuple[bytes | None, ...]):
    """Values of a text[], in UTF-8. As text, NULL would depend on the setting array_nulls."""


class _TextsDumper(Dumper):
    format = Format.BINARY
    oid = psycopg.adapters.types["text"].array_oid

    def dump(self, obj: Texts) -> bytes:
        """See array_recv in PostgreSQL: dimensions, flag, type of elements; length, first index."""
        text = psycopg.adapters.types["text"].oid
        if not obj:
            return pack("!iii", 0, 0, text)
        parts = [pack("!iiiii", 1, None in obj, text, len(obj), 1)]
        for each in obj:
            parts += [_NULL] if each is None else [pack("!i", len(each)), each]
        return b"".join(parts)


_NULL = pack("!i", -1)
psycopg.adapters.register_dumper(Texts, _TextsDumper)


class _UnparsedJson(Loader):
    """Returns JSON as the server wrote it."""

    def load(self, data: Buffer) -> bytes:
        return bytes(data)


def _leave_json_unparsed(cursor: psycopg.Cursor[Any] | psycopg.AsyncCursor[Any]) -> None:
    cursor.adapters.register_loader("jsonb", _UnparsedJson)
