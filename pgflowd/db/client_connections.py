"""
The connections of a client: its own ones, of which it keeps a few, and those of its caller.

These may be of other libraries, in whose transactions `db.performing` executes operations:

| object | library |
|---|---|
| `Session`, `Connection`, `scoped_session`, and those of `sqlalchemy.ext.asyncio` | SQLAlchemy 2 |
| `Connection`, also one of a pool | asyncpg |
| `connection`, `connections["default"]` | Django |

A library is found by the modules of the object's classes, and is never imported here before its
user has imported it. Nothing is committed or rolled back. Parameters go to the driver as
parameters. JSON goes and comes as text, since applications may set codecs of their own for it.
"""

from __future__ import annotations

import os
import re
import selectors
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar
from uuid import UUID
from weakref import WeakSet

import psycopg

from pgflowd.core import context
from pgflowd.core.text import with_article
from pgflowd.db import runs
from pgflowd.db.connection import ServerError, as_diagnosed, server_error_of, translation_of
from pgflowd.db.operations import Operation
from pgflowd.db.query import Query
from pgflowd.errors import RunError

_MARK = re.compile(r"%%|%s(::jsonb(?:\[\])?)?")
_LONE_COLON = re.compile(r"(?<!:):(?=\w)")  # SQLAlchemy would take it for a parameter
_IN_QUOTES = re.compile(r'["\\]')
# drivers that do not know UUIDs, or take the text `null` in a list for NULL
_NEED_TEXTS = ("psycopg2", "pg8000")


class Library(Enum):
    """Whose connection it is."""

    SQLALCHEMY = "SQLAlchemy"
    SQLALCHEMY_ASYNC = "SQLAlchemy's asyncio"
    ASYNCPG = "asyncpg"
    DJANGO = "Django"

    @property
    def is_async(self) -> bool:
        return self in (Library.SQLALCHEMY_ASYNC, Library.ASYNCPG)


class SqlalchemySession(Protocol):
    """A `Session` or `Connection` of SQLAlchemy."""

    def execute(self, statement: Any, /) -> Any: ...
    def scalar(self, statement: Any, /) -> Any: ...
    def commit(self) -> None: ...


class SqlalchemyAsyncSession(Protocol):
    """An `AsyncSession` or `AsyncConnection` of SQLAlchemy."""

    def execute(self, statement: Any, /) -> Coroutine[Any, Any, Any]: ...
    def scalar(self, statement: Any, /) -> Coroutine[Any, Any, Any]: ...
    def commit(self) -> Coroutine[Any, Any, None]: ...


class AsyncpgConnection(Protocol):
    """A `Connection` of asyncpg."""

    def is_in_transaction(self) -> bool: ...
    def get_server_pid(self) -> int: ...


class PooledAsyncpgConnection(Protocol):
    """One of a pool of asyncpg; what it has is found at run time."""

    def __getattr__(self, attr: str, /) -> Any: ...


class DjangoConnection(Protocol):
    """`django.db.connection`."""

    in_atomic_block: bool

    def cursor(self) -> Any: ...


Foreign: TypeAlias = SqlalchemySession | DjangoConnection
AsyncForeign: TypeAlias = SqlalchemyAsyncSession | AsyncpgConnection | PooledAsyncpgConnection


def library_of(database: object) -> Library | None:
    """Whose connection an object is; None if it is none that is known."""
    for kind in type(database).__mro__:
        for library, module, *names in _KINDS:
            if kind.__module__.startswith(module) and kind.__name__ in names:
                return library
    return None


_KINDS = (  # of connections: the library, its module, the names of their classes
    (Library.SQLALCHEMY_ASYNC, "sqlalchemy.ext.asyncio", "AsyncSession", "AsyncConnection",
     "async_scoped_session"),
    (Library.SQLALCHEMY, "sqlalchemy.orm", "Session", "scoped_session"),
    (Library.SQLALCHEMY, "sqlalchemy.engine", "Connection"),
    (Library.ASYNCPG, "asyncpg.connection", "Connection"),
    (Library.ASYNCPG, "asyncpg.pool", "PoolConnectionProxy"),
    (Library.DJANGO, "django.db.backends.base.base", "BaseDatabaseWrapper"),
    (Library.DJANGO, "django.utils.connection", "ConnectionProxy"),
)  # fmt: skip


def pool_of(connection: Any) -> object:
    """What is asked only once whether its schema serves us: a pool, or what stands for one."""
    engine = getattr(connection, "engine", None)  # of SQLAlchemy
    if engine is not None:
        return getattr(engine, "sync_engine", engine)
    operations = getattr(connection, "ops", None)  # of Django
    return operations.connection if operations else getattr(connection, "_con", connection)


def for_django(query: Query[Any]) -> tuple[str, list[Any]]:
    """A statement as Django takes it, and its parameters."""
    sql = with_marks(query.sql.replace("%%", "%%%%"), lambda nr: "%s")
    return sql, _as_texts(query.params)


def with_marks(sql: str, mark: Callable[[int], str]) -> str:
    """The SQL with a driver's marks of parameters, counted from 0; JSON is sent as text."""
    count = 0

    def replaced(found: re.Match[str]) -> str:
        nonlocal count
        if found[0] == "%%":
            return "%"
        count += 1
        cast = found[1]
        as_text = "" if not cast else "::text[]" if cast.endswith("[]") else "::text"
        return mark(count - 1) + as_text + (cast or "")

    return _MARK.sub(replaced, sql)


def for_sqlalchemy(query: Query[Any], driver: str) -> tuple[Any, dict[str, Any]]:
    """A statement of SQLAlchemy with named parameters, and their values."""
    from sqlalchemy import text

    plain = _LONE_COLON.sub(r"\:", query.sql)
    params = _as_texts(query.params) if driver in _NEED_TEXTS else query.params
    values = {f"pgflowd_{nr}": value for nr, value in enumerate(params)}
    # in parentheses, as it takes `:name::type` for no parameter
    return text(with_marks(plain, lambda nr: f"(:pgflowd_{nr})")), values


def _as_texts(params: Sequence[Any]) -> list[Any]:
    """Parameters with texts in place of UUIDs and arrays, which PostgreSQL reads alike."""
    texts: list[Any] = []
    for value in params:
        if isinstance(value, list):  # as PostgreSQL writes an array
            quoted = ('"' + _IN_QUOTES.sub(r"\\\g<0>", str(each)) + '"' for each in value)
            pairs = zip(value, quoted, strict=True)
            value = "{" + ",".join("NULL" if each is None else text for each, text in pairs) + "}"
        texts.append(str(value) if isinstance(value, UUID) else value)
    return texts


def refuse_other_server(name: str) -> None:
    """Raise TypeError unless the server is PostgreSQL, by its library's name for it."""
    if name != "postgresql":
        raise TypeError(f"the connection is to {name}; runs are in PostgreSQL, so pass one to that")


# errors


@contextmanager
def translated_foreign() -> Iterator[None]:
    """Raise errors of the database as errors of pgflowd, where there is a translation."""
    try:
        yield
    except Exception as error:
        found = next(filter(None, map(_server_error, _causes(error))), None)
        translation = found and translation_of(found)
        if translation is None:
            raise
        raise translation from error


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error, the driver's own in it, and what caused them."""
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        one = pending.pop(0)
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        pending += [getattr(one, "orig", None), one.__cause__]


def _server_error(error: BaseException) -> ServerError | None:
    """What a driver tells of an error of the server; None if it is none, or not the driver's."""
    if isinstance(error, psycopg.Error):
        return server_error_of(error)
    state = getattr(error, "pgcode", None)
    if state and getattr(error, "diag", None) is not None:  # psycopg2
        return as_diagnosed(error, state)
    if isinstance(getattr(error, "sqlstate", None), str) and hasattr(error, "constraint_name"):
        names = ("sqlstate", "message", "hint", "detail", "context", "schema_name",
                 "constraint_name")  # fmt: skip
        return ServerError(*(getattr(error, name, None) for name in names))  # asyncpg
    fields = error.args[0] if error.args else None
    if isinstance(fields, dict) and "C" in fields and "M" in fields:  # pg8000
        return ServerError(*map(fields.get, "CMHDWsn"))
    return None


Connection = psycopg.Connection[Any]
AsyncConnection = psycopg.AsyncConnection[Any]
AnyConnection = TypeVar("AnyConnection", Connection, AsyncConnection)
T = TypeVar("T")
RunId: TypeAlias = UUID | str
Given: TypeAlias = Connection | Foreign  # of applications
AsyncGiven: TypeAlias = AsyncConnection | AsyncForeign
Open: TypeAlias = Callable[[], Connection]
AsyncOpen: TypeAlias = Callable[[], Awaitable[AsyncConnection]]

NAME = "pgflowd client"  # in pg_stat_activity
MAX_IDLE = 4  # connections of a client that are kept
_served: WeakSet[Any] = WeakSet()  # pools and connections whose schema serves this pgflowd
_Selector = getattr(selectors, "PollSelector", selectors.DefaultSelector)  # needs no descriptor


class IdleConnections(Generic[AnyConnection]):
    """
    Idle connections for the next operation. List operations are atomic among threads.

    After a fork they belong to the parent: the child forgets them and sends the server nothing.
    """

    def __init__(self) -> None:
        self.idle: list[AnyConnection] = []
        self.closed = False
        self._process = os.getpid()

    def take(self) -> AnyConnection | None:
        """Return an idle connection whose server is still there, or None."""
        if self._process != os.getpid():
            self.idle, self._process = [], os.getpid()
        while True:
            try:
                conn = self.idle.pop()
            except IndexError:
                return None
            if not conn.closed:
                with _Selector() as selector:  # to an idle connection a server only sends its end
                    selector.register(conn.pgconn.socket, selectors.EVENT_READ)
                    if not selector.select(timeout=0):
                        return conn
            conn.pgconn.finish()

    def keep(self, conn: AnyConnection) -> bool:
        """Keep a connection for later; return False if it cannot or need not be kept."""
        is_usable = not self.closed and not conn.closed and not conn.broken
        if is_usable and len(self.idle) < MAX_IDLE:
            self.idle.append(conn)
            return True
        return False


class ClientConnections(Generic[AnyConnection]):
    """What both clients share: a URL or a connection of the caller, and connections to keep."""

    _own: ClassVar[type[Any]]  # psycopg's connections that this client takes

    def __init__(self, database: Any, using: str | None = None) -> None:
        """`using`: the name of a connection of Django."""
        if using is not None and database != "":
            raise TypeError("Client takes a database, or using=, not both")
        self._refuse_unknown(database)
        self._using = using
        self._url = database if isinstance(database, str) else ""
        self._given: Any = None if isinstance(database, str) else database
        self._connections: IdleConnections[AnyConnection] = IdleConnections()

    def _own_url(self) -> str:
        """The URL; without one, in a handler, that of the daemon's database."""
        ask = context.database_of_task
        return self._url if self._url or ask is None else ask()

    def _given_or(self, conn: Any) -> Any:
        """The connection of the caller, if there is one."""
        given = conn if conn is not None else self._given
        if given is not None:
            self._refuse_unknown(given)
        if given is None and self._using is not None:
            from django.db import connections

            return connections[self._using]  # of this thread
        return given

    def _checked(self, pool: object, operation: Operation[T]) -> Operation[T]:
        """The operation, after the schema was asked, once for each pool, whether it serves us."""
        pool = getattr(pool, "pool", pool)  # of another library's connection
        if pool not in _served:
            yield runs.require_schema()
            _served.add(pool)
        return (yield from operation)

    @contextmanager
    def _kept_after(self, own: AnyConnection) -> Iterator[AnyConnection]:
        """Keep a connection of ours after its use; close it if its state is unknown."""
        try:
            yield own
        except RunError:  # raised between operations
            self._keep(own)
            raise
        except BaseException:
            own.pgconn.finish()
            raise
        self._keep(own)

    def _keep(self, own: AnyConnection) -> None:
        if not self._connections.keep(own):
            own.pgconn.finish()  # as `close`, which one of the clients would have to await

    def _close(self) -> None:
        self._connections.closed = True
        while own := self._connections.take():
            own.pgconn.finish()

    def _refuse_unknown(self, database: object) -> None:
        """Raise TypeError for None, a connection of the other client, or another object."""
        name = type(self).__name__
        if database is None:
            raise TypeError(f"{name}(None): write {name}() for the libpq environment")
        library = library_of(database)
        is_psycopg = isinstance(database, psycopg.Connection | psycopg.AsyncConnection)
        is_of_other = library and library.is_async != issubclass(self._own, psycopg.AsyncConnection)
        if is_of_other or (is_psycopg and not isinstance(database, self._own)):
            kind = type(database).__name__
            raise TypeError(f"{name} cannot use {kind}; use the other client")
        if library is None and not isinstance(database, str) and not hasattr(database, "pgconn"):
            kind = with_article(type(database).__name__)
            raise TypeError(
                f"{name} takes a URL, or a connection of psycopg, SQLAlchemy, asyncpg or Django,"
                f" not {kind}"
            )

    def _refuse_wait(self) -> None:
        """Raise on a connection that was passed in."""
        if self._given is not None or self._using is not None:
            raise ValueError(
                "a connection that was passed in cannot wait, since nothing happens before its"
                " commit; wait with a client made of a URL"
            )
