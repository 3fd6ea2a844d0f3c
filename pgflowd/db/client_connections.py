"""
The connections of a client: its own ones, of which it keeps a few, and those of its caller.
"""

from __future__ import annotations

import os
import selectors
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar
from uuid import UUID
from weakref import WeakSet

import psycopg

from pgflowd.core import context
from pgflowd.core.text import with_article
from pgflowd.db import runs
from pgflowd.db.foreign_connections import AsyncForeign, Foreign, django_connection, library_of
from pgflowd.db.operations import Operation
from pgflowd.errors import RunError

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
            return django_connection(self._using)
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
