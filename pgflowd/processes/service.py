"""
The parts that listener and sweeper share: a loop without asyncio and threads, and a connection.

`Service` waits for messages of the supervisor and for other sockets, sends a heartbeat every
5 s, and raises StopRequested when it is to end, also during a call to a database that hangs.
`DatabaseLink` is one connection that reconnects by itself: an unavailable database is a state,
never a crash (docs/background/failures.md, D4). `limited` shuts a connection's socket when a call
takes too long; nothing else ends a call on a half-open connection.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import select
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import FrameType
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from pgflowd.core import messages as msg
from pgflowd.core.backoff import reconnect_delay_s
from pgflowd.core.failure import DatabaseFailure
from pgflowd.core.metrics.definitions import LOG_RECORDS_DROPPED, portions
from pgflowd.core.redact import secrets_in
from pgflowd.core.settings.sections import Settings
from pgflowd.core.settings.values import Ref
from pgflowd.db.connection import connect, failure_of, is_refused, limits_of
from pgflowd.db.query import Query, execute
from pgflowd.errors import PgflowdError
from pgflowd.host.channel import Channel
from pgflowd.host.config import read
from pgflowd.host.logs import Log

HEARTBEAT_S = 5.0  # a small part of hang_timeout
SPARE_S = 2.0  # beyond statement_timeout, so that the server ends a slow call first
LAST_S = 1.0  # for a call as a child ends; well within the limit of its stop

CONNECTION_ERRORS = (psycopg.Error, PgflowdError, OSError)


class StopRequested(Exception):
    """The supervisor asked this child to end, or has ended itself."""


class Service:
    """A child's end of the channel: orders come in, heartbeats go out."""

    def __init__(self, channel: Channel, settings: Settings, log: Log) -> None:
        self.channel = channel
        self._log = log
        self._heartbeat_s = min(HEARTBEAT_S, settings.supervisor.hang_timeout_s / 3)
        self.numbers: dict[str, Any] = {}
        self.orders: deque[msg.Message] = deque()  # except those to end
        self._heartbeat_at = 0.0
        self._is_stop_requested = False
        signal.signal(signal.SIGIO, lambda number, frame: self._receive())

    def wait(self, until: float, others: Iterable[int] = ()) -> list[int]:
        """Wait until an order comes, one of the others is readable, or the moment comes."""
        while True:  # once in any case: who always has orders sends heartbeats, too
            ready = self._wait_once(0.0 if self.orders else until, others)
            if ready or self.orders or time.monotonic() >= until:
                return ready

    def wait_until(self, until: float) -> None:
        """Wait for the moment; orders, except those to end, are kept."""
        while time.monotonic() < until:
            self._wait_once(until, ())

    def _wait_once(self, until: float, others: Iterable[int]) -> list[int]:
        if self._is_stop_requested:  # the exception was dropped where the signal came
            raise StopRequested
        now = time.monotonic()
        if now >= self._heartbeat_at:
            self.channel.flush()
            for part in portions({**self.numbers, LOG_RECORDS_DROPPED.key: self._log.lost}):
                self.channel.send(msg.Heartbeat(part))
            self._heartbeat_at = now + self._heartbeat_s
        nap_s = max(0.0, min(until, self._heartbeat_at) - now)
        ready = select.select([self.channel.fileno(), *others], [], [], nap_s)[0]
        if self.channel.fileno() in ready:
            self._receive()
            ready.remove(self.channel.fileno())
        return ready

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Receive orders during a call that waits: the kernel sends SIGIO."""
        number = self.channel.fileno()
        flags = fcntl.fcntl(number, fcntl.F_GETFL)
        fcntl.fcntl(number, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(number, fcntl.F_SETFL, flags | os.O_ASYNC)
        try:
            self._receive()
            yield
        finally:
            fcntl.fcntl(number, fcntl.F_SETFL, flags)

    def send_heartbeat_soon(self) -> None:
        """Send the next heartbeat at once: the numbers have changed."""
        self._heartbeat_at = 0.0

    def _receive(self) -> None:
        for message in self.channel.receive():
            if isinstance(message, msg.Drain | msg.QuickStop):
                self._is_stop_requested = True
            elif isinstance(message, msg.Message):
                self.orders.append(message)
        if self._is_stop_requested or self.channel.at_end:
            raise StopRequested


class DatabaseLink:
    """A connection to the database that reconnects by itself."""

    def __init__(self, service: Service, settings: Settings, log: Log, role: str, url: Ref) -> None:
        self._conn: psycopg.Connection[Any] | None = None
        self._service = service
        self._settings = settings
        self._log = log
        self._name = f"{settings.pgflowd.name}: {role}"
        self._role = role
        self._url = url
        self._failures = 0
        self._was_up = False
        self._was_refused = False  # the last try; a person has to act

    def run(
        self,
        prepare: Callable[[psycopg.Connection[Any]], None],
        work: Callable[[psycopg.Connection[Any]], None],
    ) -> None:
        """Connect, report Ready, and work; begin again whenever the connection is lost."""
        is_ready = False
        while True:
            conn = self._connect(prepare)
            if not is_ready:
                self._service.channel.send(msg.Ready())
                is_ready = True
            try:
                work(conn)
            except CONNECTION_ERRORS as error:
                self._on_lost(error)

    def once(self, prepare: Callable[[psycopg.Connection[Any]], None]) -> None:
        """Connect, prepare, and close; however long it takes."""
        self._connect(prepare).close()
        self._conn = None

    def _connect(
        self, prepare: Callable[[psycopg.Connection[Any]], None]
    ) -> psycopg.Connection[Any]:
        """Connect, however long it takes; report when the first try fails."""
        if self._was_refused:
            self._wait_to_retry()
        while self._conn is None:
            try:
                self._conn = self.open()
                with self.limited(self._conn):
                    prepare(self._conn)
            except CONNECTION_ERRORS as error:
                self._on_lost(error)
                self._wait_to_retry()
        server = self._conn.info.parameter_status("server_version") or ""
        self._note_state("up", server=server.partition(" ")[0])
        if self._failures:
            self._log.info(f"{self._role}.regained", attempts=self._failures)
            self._service.channel.send(msg.Waiting(None))
        self._failures = 0
        self._was_up = True
        return self._conn

    def _on_lost(self, error: BaseException) -> None:
        """Close a connection that failed, and report it."""
        if self._conn is not None:
            with contextlib.suppress(*CONNECTION_ERRORS):
                self._conn.close()
            self._conn = None
        self._failures += 1
        failure, text = failure_of(error)
        self._was_refused = failure not in {DatabaseFailure.RETRY, DatabaseFailure.ALERT}
        code, remedy = getattr(error, "code", "E301"), getattr(error, "next", None)
        self._note_state("down", code=code, error=getattr(error, "text", text), next=remedy)
        if is_refused(error):
            self._service.channel.send(msg.ConnectionRefused())
        errors = self._service.numbers.setdefault("database_errors", {})
        errors[failure] = errors.get(failure, 0) + 1
        if self._failures == 1:
            reconnects = self._service.numbers.get("reconnects", 0) + self._was_up
            self._service.numbers["reconnects"] = reconnects
            self._service.channel.send(msg.Waiting("database"))
        if self._failures == 1 or failure is not DatabaseFailure.RETRY:
            self._service.send_heartbeat_soon()
            level = "warning" if failure is DatabaseFailure.RETRY else "error"
            self._log.write(level, f"{self._role}.lost", code=code, error=text)

    def _note_state(self, state: str, **more: str | None) -> None:
        self._service.numbers["database"] = {"state": state, "at": time.time(), **more}

    def leave(self, query: Query[Any] | None = None) -> None:
        """Close the connection, after a last query; over another one if this is still in use."""
        if self._conn is None or self._conn.closed:
            return
        database = self._settings.database
        with contextlib.suppress(*CONNECTION_ERRORS), contextlib.ExitStack() as stack:
            conn = stack.enter_context(contextlib.closing(self._conn))
            if query is None:
                return
            if conn.info.transaction_status is not TransactionStatus.IDLE:
                limits, url = limits_of(database), read(self._url, place="[database] url")
                guard = partial(limited, limit_s=LAST_S)
                opened = connect(url, name=self._name, limits=limits, guard=guard)
                conn = stack.enter_context(contextlib.closing(opened))
            with limited(conn, LAST_S):
                execute(conn, query)

    @contextlib.contextmanager
    def limited(self, conn: psycopg.Connection[Any]) -> Iterator[None]:
        """Limit the time of the calls inside."""
        limit_s = self._settings.database.statement_timeout_s + SPARE_S
        with self._service.interruptible(), limited(conn, limit_s):
            yield

    def open(self) -> psycopg.Connection[Any]:
        """Open a connection; the caller of this method closes it."""
        url = read(self._url, place="[database] url")
        self._log.hide(secrets_in(url))
        limits = limits_of(self._settings.database)
        with self._service.interruptible():
            return connect(url, name=self._name, limits=limits, guard=self.limited)

    def _wait_to_retry(self) -> None:
        """Wait before another try: longer each time, and longest where a person has to act."""
        database = self._settings.database
        max_s = database.reconnect_max_s
        min_s = max_s if self._was_refused else database.reconnect_min_s
        nap_s = reconnect_delay_s(self._failures, min_s, max_s, random.random())
        self._service.wait_until(time.monotonic() + nap_s)


@contextlib.contextmanager
def limited(conn: psycopg.Connection[Any], limit_s: float) -> Iterator[None]:
    """Shut the connection's socket when the limit has passed; the call then fails at once."""
    number = os.dup(conn.fileno())

    def shut(_number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(number)) as end:
            end.shutdown(socket.SHUT_RDWR)

    before = signal.signal(signal.SIGALRM, shut)
    outer_s, _ = signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, outer_s)
        os.close(number)
