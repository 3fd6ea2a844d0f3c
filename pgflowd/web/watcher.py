"""
The watcher: reads what somebody views, once for all tabs, and wakes them when it has changed.

It is a thread with two connections: one reads, one listens. It starts with the first tab, ends a
while after the last, and knows nothing that the next one would miss. While the database is away,
pages say so and how old they are; it tries again until the database is back.
"""

from __future__ import annotations

import logging
import secrets
import select
import socket
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TypeVar
from uuid import UUID

import psycopg

from pgflowd.core.backoff import doubled_s
from pgflowd.db.connection import translated
from pgflowd.db.following import Channels, Heard
from pgflowd.db.performing import run_sync
from pgflowd.errors import Bug, PgflowdError, Unreachable
from pgflowd.web.connections import Connection
from pgflowd.web.fragments import Numbers
from pgflowd.web.watched import Tab, Watched

AnyWatched = TypeVar("AnyWatched", bound=Watched)
Open = Callable[[], Connection]

IDLE_S = 10.0  # after the last tab: one that reloads finds what it knows
MAX_WATCHED = 600  # different pages and runs at once
_MIN_RECONNECT_S, _MAX_RECONNECT_S = 0.25, 2.0

log = logging.getLogger(__name__)


class TooMany(Unreachable):
    """Too many different pages are viewed at once."""


class Watcher:
    """All that is viewed, and the thread that reads it."""

    def __init__(self, open_reading: Open, open_listening: Open) -> None:
        self.numbers = Numbers(secrets.token_hex(4))
        self._open_reading, self._open_listening = open_reading, open_listening
        self._lock = threading.Lock()
        self._watched: dict[Hashable, Watched] = {}
        self._thread: _Reading | None = None

    def enter(self, key: Hashable, make: Callable[[], AnyWatched], tab: Tab) -> AnyWatched:
        """Let a tab view something, which is read from now on."""
        with self._lock:
            found = self._watched.get(key)
            if found is None:
                if len(self._watched) >= MAX_WATCHED:
                    text = f"{MAX_WATCHED} different pages are viewed already"
                    raise TooMany(text, next="try again in a moment")
                found = self._watched[key] = make()
            watched: AnyWatched = found  # type: ignore[assignment]  # of this key
            watched.tabs |= {tab}
            watched.times.hurry()
            if self._thread is None:
                self._thread = _Reading(self)
                self._thread.start()
            else:
                self._thread.wake()
            return watched

    def leave(self, watched: Watched, tab: Tab) -> None:
        """The tab is gone."""
        with self._lock:
            watched.tabs -= {tab}
            watched.left_at = time.monotonic()
            if self._thread is not None and not watched.tabs:
                self._thread.wake()  # it knows then when to forget this

    def stop(self) -> None:
        """Let the thread end, and its connections; it may still read something."""
        with self._lock:
            thread, self._thread = self._thread, None
            self._watched.clear()
        if thread is not None:
            thread.wake()

    def forget(self, thread: _Reading) -> None:
        """This thread has ended: the next tab starts another one."""
        with self._lock:
            if self._thread is thread:
                self._thread = None

    def open_reading(self) -> Connection:
        return self._open_reading()

    def open_listening(self) -> Connection:
        return self._open_listening()

    def viewed(self, thread: _Reading) -> list[Watched] | None:
        """What this thread reads, without what nobody has viewed for a while; None: it ends."""
        with self._lock:
            before = time.monotonic() - IDLE_S
            self._watched = {
                key: each
                for key, each in self._watched.items()
                if each.tabs or each.left_at > before
            }
            if self._thread is thread and not self._watched:
                self._thread = None
            if self._thread is not thread:
                return None
            return list(self._watched.values())


class _Reading(threading.Thread):
    """The thread, from the first tab to the last."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(name="pgflowd-watcher", daemon=True)
        self._watcher = watcher
        self._listener = _Listener(watcher.open_listening)
        self._conn: Connection | None = None
        self._woken, self._wakes = socket.socketpair()
        self._woken.setblocking(False)
        self._wakes.setblocking(False)
        self._away_since: datetime | None = None
        self._pause_s = 0.0
        self._try_at = 0.0
        self._listen_at = 0.0

    def wake(self) -> None:
        with suppress(OSError):  # full: it is awake; closed: it has ended
            self._wakes.send(b"!")

    def run(self) -> None:
        try:
            while (viewed := self._watcher.viewed(self)) is not None:
                self._turn(viewed)
        finally:
            self._watcher.forget(self)
            self._close()
            self._listener.close()
            self._woken.close()
            self._wakes.close()

    def _turn(self, viewed: list[Watched]) -> None:
        """Read what is due, then wait until something is."""
        now = time.monotonic()
        if now >= self._try_at:
            try:
                for each in sorted(viewed, key=lambda one: one.times.due_at):
                    if each.tabs and each.times.due_at <= time.monotonic():
                        self._read(each)
                self._follow(viewed)
                self._pause_s = 0.0
            except Exception as error:
                self._away(viewed, error)
        due = [each.times.due_at if each.tabs else each.left_at + IDLE_S for each in viewed]
        until = max(min([*due, self._listener.follow_at]), self._try_at)
        self._wait(viewed, until - time.monotonic())

    def _read(self, watched: Watched) -> None:
        if self._conn is None or self._conn.closed:
            self._conn = self._watcher.open_reading()
            self._away_since = None
        began = time.monotonic()
        try:
            is_new = watched.read(self._conn)
        except Exception as error:  # the other pages go on
            if self._conn.closed:
                raise
            is_new = watched.fail(_known(error), datetime.now(UTC))
        watched.times.was_read(began, time.monotonic(), watched.every_s)
        if is_new or not watched.was_read:
            watched.was_read = True
            watched.wake_tabs()

    def _follow(self, viewed: list[Watched]) -> None:
        """
        Hear of the runs that are viewed; read at once what may have been missed before. Without it
        pages are read all the same, only less often.
        """
        if time.monotonic() < self._listen_at:
            return
        wanted: dict[UUID, bool] = {}
        for each in viewed:
            for run_id, with_output in each.followed.items():
                wanted[run_id] = wanted.get(run_id, False) or with_output
        try:
            news = self._listener.follow(wanted)
        except Exception as error:
            self._deaf(error)
            return
        for each in viewed:
            if news & set(each.followed):
                each.times.hurry()

    def _wait(self, viewed: list[Watched], max_s: float) -> None:
        try:
            heard = self._listener.wait(self._woken.fileno(), max_s)
        except Exception as error:
            self._deaf(error)
            return
        with suppress(BlockingIOError):
            self._woken.recv(4096)
        for run_id, payload, is_output in heard:
            for each in viewed:
                if run_id in each.followed:
                    if not is_output:
                        each.times.hurry()
                    elif each.hear(run_id, payload):
                        each.wake_tabs()

    def _deaf(self, error: Exception) -> None:
        """Hear nothing for a while. Whether the database is away, the next reading finds out."""
        self._listener.close()
        self._listen_at = time.monotonic() + _MAX_RECONNECT_S
        _known(error)

    def _away(self, viewed: list[Watched], error: Exception) -> None:
        """The database is gone: say so, and try again in a moment."""
        self._close()
        self._listener.close()
        self._pause_s = doubled_s(self._pause_s, _MIN_RECONNECT_S, _MAX_RECONNECT_S)
        self._try_at = time.monotonic() + self._pause_s
        self._away_since = self._away_since or datetime.now(UTC)
        known = _known(error)
        for each in viewed:
            each.times.hurry()
            if each.fail(known, self._away_since) or not each.was_read:
                each.was_read = True
                each.wake_tabs()

    def _close(self) -> None:
        if self._conn is not None:
            self._conn.pgconn.finish()
        self._conn = None


class _Listener:
    """Hears of the runs that somebody views, on one connection for all tabs."""

    def __init__(self, open: Open) -> None:
        self._open = open
        self._conn: Connection | None = None
        self._channels = Channels()

    def close(self) -> None:
        """Hear nothing more; the next call of `follow` connects again."""
        if self._conn is not None:
            self._conn.pgconn.finish()
        self._conn, self._channels = None, Channels()

    @property
    def follow_at(self) -> float:
        """When to call `follow` again, by the monotonic clock."""
        return self._channels.follow_at

    def follow(self, wanted: Mapping[UUID, bool]) -> set[UUID]:
        """Hear of these runs from now on, and perhaps of their output; return those to read now."""
        if self._conn is None:
            if not wanted:
                return set()
            self._conn = self._open()
        return run_sync(self._conn, self._channels.follow(wanted))

    def wait(self, wake: int, max_s: float) -> list[Heard]:
        """Wait for a notification, or until somebody writes to `wake`."""
        if heard := self._heard():
            return heard
        poll = select.poll()  # unlike select it knows large descriptors
        poll.register(wake, select.POLLIN)
        if self._conn is not None:
            poll.register(self._conn.pgconn.socket, select.POLLIN)
        poll.poll(max(max_s, 0.0) * 1000)
        return self._heard()

    def _heard(self) -> list[Heard]:
        if self._conn is None:
            return []
        with translated(self._conn):
            return self._channels.heard(self._conn.notifies(timeout=0))


def _known(error: Exception) -> PgflowdError:
    """The error as people read it."""
    if isinstance(error, PgflowdError):
        return error
    if isinstance(error, psycopg.errors.QueryCanceled):
        text = "the database took too long to answer"
        return Unreachable(text, next="this page is read again in a while")
    if isinstance(error, psycopg.OperationalError):
        text = "the database has closed the connection"
        return Unreachable(text, next="this page is live again when the database is back")
    log.exception("a page cannot be read again", exc_info=error)
    return Bug("this page cannot be read again; the log of pgflowd web says why")
