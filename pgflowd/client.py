"""
Client: what applications call to start runs and follow them.

    client = Client("postgresql://…")   # or Client(conn), or Client() for the libpq environment
    run = client.start_flow_sync("analyze_website", {"url": url}, timeout=30)

`AsyncClient` has the same methods, awaited. Both only perform the scripts of `db.client_steps`; a
client made of a URL keeps a few connections for the next call and may be used by several
threads. A connection that was passed in is the caller's: it is never committed, rolled back
or closed, and nothing can be waited for on it, since nothing happens before its commit.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from contextlib import asynccontextmanager, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import psycopg

from pgflowd.core.documents.runs import Run, RunWithStates, StepState
from pgflowd.core.ids import run_id_of, uuid7
from pgflowd.db import client_steps
from pgflowd.db.client_steps import Operations
from pgflowd.db.connection import connect, connect_async
from pgflowd.db.operations import Connections, Patience, run_async, run_sync
from pgflowd.errors import RunError, Unreachable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

__all__ = ["AsyncClient", "Client", "Run", "RunWithStates", "StepState"]

Connection = psycopg.Connection[Any]
AsyncConnection = psycopg.AsyncConnection[Any]
T = TypeVar("T")
RunId = UUID | str

NAME = "pgflowd client"


class Client:
    """For plain code and threads."""

    def __init__(self, database: str | Connection = "") -> None:
        _refuse_kind(database, psycopg.AsyncConnection, "Client")
        self._url = database if isinstance(database, str) else ""
        self._given = None if isinstance(database, str) else database
        self._connections: Connections[Connection] = Connections()

    def start_flow(
        self,
        flow_slug: str,
        input: Any,
        *,
        run_id: RunId | None = None,
        conn: Connection | None = None,
    ) -> Run:
        """Start a run; with `conn`, when that commits. RunExists, UnknownFlow, MapInput."""
        return self._play(client_steps.start(flow_slug, input, _id_or_new(run_id)), conn)

    def start_flows(
        self,
        flow_slug: str,
        inputs: Sequence[Any],
        *,
        run_ids: Sequence[RunId] | None = None,
        conn: Connection | None = None,
    ) -> list[Run]:
        """Start a run for each input, all or none, in their order."""
        return self._play(client_steps.start_many(flow_slug, inputs, _ids(run_ids, inputs)), conn)

    def start_flow_sync(
        self,
        flow_slug: str,
        input: Any,
        *,
        timeout: float | None = None,
        run_id: RunId | None = None,
    ) -> Run:
        """Start a run and wait for its end. WaitTimeout: it goes on."""
        _refuse(self._given)
        run = self._play(client_steps.start(flow_slug, input, _id_or_new(run_id)))
        return run if run.has_ended else self._wait(Patience(run.run_id, timeout, has_reached=True))

    def wait(self, run_id: RunId, *, timeout: float | None = None) -> Run:
        """
        Wait for the end of a run. A failed run is a value. WaitTimeout, NotFound.

        A database that goes away meanwhile is waited for, too.
        """
        _refuse(self._given)
        return self._wait(Patience(run_id_of(run_id), timeout))

    def get_run(self, run_id: RunId, *, conn: Connection | None = None) -> Run:
        """Read a run. NotFound."""
        return self._play(client_steps.get(run_id_of(run_id)), conn)

    def get_run_with_states(
        self, run_id: RunId, *, conn: Connection | None = None
    ) -> RunWithStates:
        """Read a run and its steps, as `run.steps["summary"].status`. NotFound."""
        return self._play(client_steps.get_with_states(run_id_of(run_id)), conn)

    def cancel(
        self,
        run_id: RunId,
        *,
        reason: str | None = None,
        actor: str | None = None,
        conn: Connection | None = None,
    ) -> Run:
        """End a run and its running tasks. RunEnded if it is over; twice is once."""
        return self._play(client_steps.cancel(run_id_of(run_id), reason, actor), conn)

    def retry(
        self,
        run_id: RunId,
        *,
        actor: str | None = None,
        even_if_cancelled: bool = False,
        conn: Connection | None = None,
    ) -> Run:
        """Try the failed steps of a run again; completed work stays. NotRetryable."""
        return self._play(client_steps.retry(run_id_of(run_id), actor, even_if_cancelled), conn)

    def close(self) -> None:
        """Close the connections that are kept; one that was passed in stays open."""
        self._connections.closed = True
        while conn := self._connections.take():
            conn.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _wait(self, patience: Patience) -> Run:
        while True:
            try:
                return self._play(patience.script())
            except Unreachable as error:
                time.sleep(patience.nap_s(error))

    def _play(self, script: Operations[T], conn: Connection | None = None) -> T:
        with self._connection(conn) as connection:
            return run_sync(connection, script)

    @contextmanager
    def _connection(self, conn: Connection | None) -> Iterator[Connection]:
        if given := conn or self._given:
            _refuse_kind(given, psycopg.AsyncConnection, "Client")
            yield given
            return
        own = self._connections.take() or connect(self._url, name=NAME)
        try:
            yield own
        except RunError:  # told at the end of a script
            self._keep(own)
            raise
        except BaseException:  # in the middle of what?
            own.close()
            raise
        self._keep(own)

    def _keep(self, own: Connection) -> None:
        if not self._connections.keep(own):
            own.close()


class AsyncClient:
    """For asyncio; the methods of `Client`, awaited."""

    def __init__(self, database: str | AsyncConnection = "") -> None:
        _refuse_kind(database, psycopg.Connection, "AsyncClient")
        self._url = database if isinstance(database, str) else ""
        self._given = None if isinstance(database, str) else database
        self._connections: Connections[AsyncConnection] = Connections()

    async def start_flow(
        self,
        flow_slug: str,
        input: Any,
        *,
        run_id: RunId | None = None,
        conn: AsyncConnection | None = None,
    ) -> Run:
        """Start a run; with `conn`, when that commits. RunExists, UnknownFlow, MapInput."""
        return await self._play(client_steps.start(flow_slug, input, _id_or_new(run_id)), conn)

    async def start_flows(
        self,
        flow_slug: str,
        inputs: Sequence[Any],
        *,
        run_ids: Sequence[RunId] | None = None,
        conn: AsyncConnection | None = None,
    ) -> list[Run]:
        """Start a run for each input, all or none, in their order."""
        script = client_steps.start_many(flow_slug, inputs, _ids(run_ids, inputs))
        return await self._play(script, conn)

    async def start_flow_sync(
        self,
        flow_slug: str,
        input: Any,
        *,
        timeout: float | None = None,
        run_id: RunId | None = None,
    ) -> Run:
        """Start a run and wait for its end. WaitTimeout: it goes on."""
        _refuse(self._given)
        run = await self._play(client_steps.start(flow_slug, input, _id_or_new(run_id)))
        patience = Patience(run.run_id, timeout, has_reached=True)
        return run if run.has_ended else await self._wait(patience)

    async def wait(self, run_id: RunId, *, timeout: float | None = None) -> Run:
        """
        Wait for the end of a run. A failed run is a value. WaitTimeout, NotFound.

        A database that goes away meanwhile is waited for, too.
        """
        _refuse(self._given)
        return await self._wait(Patience(run_id_of(run_id), timeout))

    async def get_run(self, run_id: RunId, *, conn: AsyncConnection | None = None) -> Run:
        """Read a run. NotFound."""
        return await self._play(client_steps.get(run_id_of(run_id)), conn)

    async def get_run_with_states(
        self, run_id: RunId, *, conn: AsyncConnection | None = None
    ) -> RunWithStates:
        """Read a run and its steps, as `run.steps["summary"].status`. NotFound."""
        return await self._play(client_steps.get_with_states(run_id_of(run_id)), conn)

    async def cancel(
        self,
        run_id: RunId,
        *,
        reason: str | None = None,
        actor: str | None = None,
        conn: AsyncConnection | None = None,
    ) -> Run:
        """End a run and its running tasks. RunEnded if it is over; twice is once."""
        return await self._play(client_steps.cancel(run_id_of(run_id), reason, actor), conn)

    async def retry(
        self,
        run_id: RunId,
        *,
        actor: str | None = None,
        even_if_cancelled: bool = False,
        conn: AsyncConnection | None = None,
    ) -> Run:
        """Try the failed steps of a run again; completed work stays. NotRetryable."""
        return await self._play(
            client_steps.retry(run_id_of(run_id), actor, even_if_cancelled), conn
        )

    async def close(self) -> None:
        """Close the connections that are kept; one that was passed in stays open."""
        self._connections.closed = True
        while conn := self._connections.take():
            await conn.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _wait(self, patience: Patience) -> Run:
        while True:
            try:
                return await self._play(patience.script())
            except Unreachable as error:
                await asyncio.sleep(patience.nap_s(error))

    async def _play(self, script: Operations[T], conn: AsyncConnection | None = None) -> T:
        async with self._connection(conn) as connection:
            return await run_async(connection, script)

    @asynccontextmanager
    async def _connection(self, conn: AsyncConnection | None) -> AsyncIterator[AsyncConnection]:
        if given := conn or self._given:
            _refuse_kind(given, psycopg.Connection, "AsyncClient")
            yield given
            return
        own = self._connections.take() or await connect_async(self._url, name=NAME)
        try:
            yield own
        except RunError:  # told at the end of a script
            await self._keep(own)
            raise
        except BaseException:  # in the middle of what?
            await own.close()
            raise
        await self._keep(own)

    async def _keep(self, own: AsyncConnection) -> None:
        if not self._connections.keep(own):
            await own.close()


def _refuse(given: object) -> None:
    if given is not None:
        raise ValueError(
            "a connection passed in cannot wait: nothing happens before its commit;"
            " wait with a client made of a URL"
        )


def _refuse_kind(database: object, other: type[Any], name: str) -> None:
    """Tell of a connection for the other client, of a stranger's, and of None, which is no URL."""
    if database is None:
        raise TypeError(f"{name}(None): without an argument {name}() takes the libpq environment")
    if isinstance(database, other):
        raise TypeError(f"{name} cannot use {other.__name__}; that is for the other client")
    if not isinstance(database, str) and not hasattr(database, "pgconn"):
        kind = type(database).__name__
        raise TypeError(f"{name} takes a URL or a psycopg connection, not a {kind} around one")


def _id_or_new(run_id: RunId | None) -> UUID:
    return _new_id() if run_id is None else run_id_of(run_id)


def _ids(run_ids: Sequence[RunId] | None, inputs: Sequence[Any]) -> list[UUID]:
    return [_new_id() for _ in inputs] if run_ids is None else [run_id_of(one) for one in run_ids]


def _new_id() -> UUID:
    return uuid7(time.time_ns() // 1_000_000, os.urandom(10))
