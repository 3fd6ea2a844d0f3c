"""
Plain: what listener and sweeper have in common: one loop without asyncio and threads.

`Post` waits for the supervisor's orders and for whatever else, beats every 5 s, and raises
Asked when it is time to go, even in the middle of a call to a database that hangs. `Line` is
one connection that is lost and found again: what is unavailable is a state, never a crash
(failures.md, D4). `limited` shuts a connection's socket when a call takes longer than it may;
nothing else ends a call on a line that is half-open.
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
from types import FrameType
from typing import Any

import psycopg

from pgflowd.core.backoff import reconnect_delay_s
from pgflowd.core.messages import Drain, Heartbeat, Message, QuickStop, Waiting
from pgflowd.core.redact import secrets_in
from pgflowd.core.settings.refs import Ref
from pgflowd.core.settings.sections import Settings
from pgflowd.db.connection import connect, limits_of
from pgflowd.db.retry_policy import meaning_of
from pgflowd.errors import PgflowdError
from pgflowd.host.channel import Channel
from pgflowd.host.config_refs import read
from pgflowd.host.logs import Log

BEAT_S = 5.0
SPARE_S = 2.0  # beyond the server's own statement_timeout

LOST = (psycopg.Error, PgflowdError, OSError)


class StopRequested(Exception):
    """We were asked to end, or the supervisor is gone."""


class Service:
    """Where a child stands: orders come in, beats go out."""

    def __init__(self, channel: Channel, settings: Settings) -> None:
        self.channel = channel
        self._pause_s = min(BEAT_S, settings.supervisor.hang_timeout_s / 3)
        self.numbers: dict[str, Any] = {}
        self.orders: deque[Message] = deque()  # all but those to end
        self._beat_at = 0.0
        self._is_asked = False
        signal.signal(signal.SIGIO, lambda number, frame: self._listen())

    def wait(self, until: float, others: Iterable[int] = ()) -> list[int]:
        """Wait for an order, for one of the others to be readable, or for the moment."""
        while not self.orders:
            ready = self._wait_once(until, others)
            if ready or time.monotonic() >= until:
                return ready
        return []

    def rest(self, until: float) -> None:
        """Wait for the moment; orders are kept for later, but for those to end."""
        while time.monotonic() < until:
            self._wait_once(until, ())

    def _wait_once(self, until: float, others: Iterable[int]) -> list[int]:
        if self._is_asked:  # and where the signal came, somebody dropped the exception
            raise StopRequested
        now = time.monotonic()
        if now >= self._beat_at:
            self.channel.flush()
            self.channel.send(Heartbeat(self.numbers))
            self._beat_at = now + self._pause_s
        nap_s = max(0.0, min(until, self._beat_at) - now)
        ready = select.select([self.channel.fileno(), *others], [], [], nap_s)[0]
        if self.channel.fileno() in ready:
            self._listen()
            ready.remove(self.channel.fileno())
        return ready

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Hear orders while we are in a call that waits: the kernel tells us by SIGIO."""
        number = self.channel.fileno()
        flags = fcntl.fcntl(number, fcntl.F_GETFL)
        fcntl.fcntl(number, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(number, fcntl.F_SETFL, flags | os.O_ASYNC)
        try:
            self._listen()
            yield
        finally:
            fcntl.fcntl(number, fcntl.F_SETFL, flags)

    def beat_now(self) -> None:
        """Our numbers have changed in a way that people should see at once."""
        self._beat_at = 0.0

    def say(self, message: Message) -> None:
        self.channel.send(message)

    def _listen(self) -> None:
        for message in self.channel.receive():
            if isinstance(message, Drain | QuickStop):
                self._is_asked = True
            elif isinstance(message, Message):
                self.orders.append(message)
        if self._is_asked or self.channel.at_end:
            raise StopRequested


class DatabaseLink:
    """A connection to the database that comes back by itself."""

    def __init__(self, post: Service, settings: Settings, log: Log, role: str, url: Ref) -> None:
        self.conn: psycopg.Connection[Any] | None = None
        self._post = post
        self._settings = settings
        self._log = log
        self._name = f"{settings.pgflowd.name}: {role}"
        self._role = role
        self._url = url
        self._failures = 0
        self._was_up = False
        self._was_refused = False  # what we asked for last; no reconnect mends that

    def connected(self, prepare: Callable[[psycopg.Connection[Any]], None]) -> None:
        """Connect, however long it takes; say so when it does not work at once."""
        if self._was_refused:
            self._rest()
        while self.conn is None:
            try:
                self.conn = self._connect()
                with self.limited(self.conn):
                    prepare(self.conn)
            except LOST as error:
                self.lost(error)
                self._rest()
        server = self.conn.info.parameter_status("server_version") or ""
        self._tell("up", server=server.partition(" ")[0])
        if self._failures:
            self._log.info(f"{self._role}.regained", attempts=self._failures)
            self._post.say(Waiting(None))
        self._failures = 0
        self._was_up = True

    def lost(self, error: BaseException) -> None:
        """The connection is of no use any more."""
        self.drop()
        self._failures += 1
        meaning, text = meaning_of(error)
        self._was_refused = meaning not in ("again", "loud")
        self._tell("down", error=getattr(error, "text", text), next=getattr(error, "next", None))
        errors = self._post.numbers.setdefault("database_errors", {})
        errors[meaning] = errors.get(meaning, 0) + 1
        if self._failures == 1:
            reconnects = self._post.numbers.get("reconnects", 0) + self._was_up
            self._post.numbers["reconnects"] = reconnects
            self._post.say(Waiting("database"))
        if self._failures == 1 or meaning != "again":
            self._post.beat_now()
            level = "warning" if meaning == "again" else "error"
            self._log.write(level, f"{self._role}.lost", code="E301", error=text)

    def drop(self) -> None:
        if self.conn is not None:
            with contextlib.suppress(*LOST):
                self.conn.close()
            self.conn = None

    def _tell(self, state: str, **more: str | None) -> None:
        self._post.numbers["database"] = {"state": state, "at": time.time(), **more}

    @contextlib.contextmanager
    def limited(self, conn: psycopg.Connection[Any]) -> Iterator[None]:
        """Give what is done inside a limit of our own."""
        limit_s = self._settings.database.statement_timeout_s + SPARE_S
        with self._post.interruptible(), limited(conn, limit_s):
            yield

    def _connect(self) -> psycopg.Connection[Any]:
        url = read(self._url, place="[database] url")
        self._log.hide(secrets_in(url))
        limits = limits_of(self._settings.database)
        with self._post.interruptible():
            return connect(url, name=self._name, limits=limits, guard=self.limited)

    def _rest(self) -> None:
        """Wait before another try: longer and longer; long at once where a person has to act."""
        database = self._settings.database
        most_s = database.reconnect_max_s
        least_s = most_s if self._was_refused else database.reconnect_min_s
        nap_s = reconnect_delay_s(self._failures, least_s, most_s, random.random())
        self._post.rest(time.monotonic() + nap_s)


@contextlib.contextmanager
def limited(conn: psycopg.Connection[Any], limit_s: float) -> Iterator[None]:
    """Shut the connection's socket when the limit has passed; the call then fails at once."""
    number = os.dup(conn.fileno())

    def shut(_number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(number)) as line:
            line.shutdown(socket.SHUT_RDWR)

    before = signal.signal(signal.SIGALRM, shut)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        os.close(number)
