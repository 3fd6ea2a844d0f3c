"""
The watcher: reads what somebody views, once for all tabs, and wakes them when it has changed.

It is a thread with two connections: one reads, one listens. It starts with the first tab, ends a
while after the last, and knows nothing that the next one would miss. While the database is away,
pages say so and how old they are; it tries again until the database is back.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import select
import socket
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TypeVar
from uuid import UUID

import psycopg

from pgflowd.core.backoff import doubled_s
from pgflowd.core.documents.runs import RunWithStates, TimelineEntry
from pgflowd.core.payloads import Payloads
from pgflowd.core.timeline import announcement
from pgflowd.db import runs
from pgflowd.db.connection import translated
from pgflowd.db.daemons import look_at_daemons
from pgflowd.db.following import Channels, Heard
from pgflowd.db.performing import run_sync
from pgflowd.db.query import execute
from pgflowd.db.run_details import RunEvents
from pgflowd.errors import AccessDenied, Bug, NotFound, PgflowdError, Unreachable
from pgflowd.web.connections import Connection
from pgflowd.web.fragments import Fragments, Numbers, OutputLines
from pgflowd.web.rendering import render
from pgflowd.web.text import iso
from pgflowd.web.views import View

# When a document is read again. Pure: the time is an argument.
MIN_S = 0.25  # after a notification: at most four readings a second
SHARE = 20  # a document that takes long is read seldom: a twentieth of the time at most


class ReadingTimes:
    """When one document is due."""

    def __init__(self, now: float) -> None:
        self.due_at = now
        self._earliest = now
        self._is_known = False

    def was_read(self, began: float, ended: float, every_s: float) -> None:
        """It was read; without a reason it is due again after `every_s`."""
        share = SHARE if self._is_known else 1  # the first time a template is compiled, too
        self._is_known = True
        self._earliest = max(began + MIN_S, ended + share * (ended - began))
        self.due_at = max(self._earliest, ended + every_s)

    def hurry(self) -> None:
        """There is a reason to read it soon."""
        self.due_at = min(self.due_at, self._earliest)


# What the watcher reads for all tabs: a page that somebody views, or the events of a run.
#
# The watcher's thread reads and changes it; tabs, in the threads of their event loops, take what is
# new for them.
OPEN_S = 2.0  # between two readings without a notification
ENDED_S = 10.0  # of a run that has ended; a retry opens it again
MAX_SHOWN = 2000  # rows that are kept right though a list has them no more
LOOK_S = 25.0  # a look at daemons lasts a minute: one may be lost
TROUBLE = "trouble"  # the fragment that says why a page is old


class Tab:
    """Somebody who views something, in the thread of an event loop."""

    def __init__(self, shown: Sequence[str] = ()) -> None:
        self.shown = frozenset(shown)  # the ids of the rows that the tab shows
        self.news = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def wake(self) -> None:
        """There is something new; called in any thread."""
        with suppress(RuntimeError):  # its loop is closed
            self._loop.call_soon_threadsafe(self.news.set)


class Watched:
    """Something that is read while somebody views it."""

    def __init__(self) -> None:
        now = time.monotonic()
        self.tabs: frozenset[Tab] = frozenset()
        self.left_at = now  # when the last tab left
        self.times = ReadingTimes(now)
        self.was_read = False
        self.clock_ahead = timedelta()  # of the database, before this machine's
        self.lines: OutputLines | None = None
        self.run: RunWithStates | None = None

    @property
    def followed(self) -> Mapping[UUID, bool]:
        """The runs on whose notifications it is read, and whether it shows their output."""
        if self.run is None:
            return {}
        with_output = self.lines is not None
        followed = {self.run.run_id: with_output}
        if self.run.undo_run_id is not None and not self.run.has_ended:
            followed[self.run.undo_run_id] = with_output
        return followed

    @property
    def every_s(self) -> float:
        """How often it is read without a notification."""
        return ENDED_S if self.run is not None and self.run.has_ended else OPEN_S

    def read(self, conn: Connection) -> bool:
        """Read it; whether anything is new."""
        raise NotImplementedError

    def fail(self, error: PgflowdError, since: datetime) -> bool:
        """It cannot be read; whether that is new."""
        return False

    def hear(self, run_id: UUID, payload: str) -> bool:
        """Take a line of output; whether there is anything new."""
        if self.lines is None or self.run is None:
            return False
        return self.lines.hear(payload, run_id != self.run.run_id, time.monotonic())

    @property
    def now(self) -> str:
        """The time of the database, by which the script tells how long ago something was."""
        return iso(datetime.now(UTC) + self.clock_ahead)

    def wake_tabs(self) -> None:
        for tab in self.tabs:
            tab.wake()


def _new_lines() -> OutputLines:
    return OutputLines(time.time_ns() // 1_000_000)


class WatchedPage(Watched):
    """A page, and its fragments as they were rendered last."""

    def __init__(self, view: View, numbers: Numbers) -> None:
        super().__init__()
        self.view = view
        self.fragments = Fragments(numbers)
        self.in_page: frozenset[str] = frozenset()  # ids of what a new reader would see
        self._look_at = 0.0
        if view.shows_output:
            self.lines = _new_lines()

    def read(self, conn: Connection) -> bool:
        self._look(conn)
        shown = sorted(frozenset[str]().union(*(tab.shown for tab in self.tabs)))[:MAX_SHOWN]
        document, others = self.view.read_with(conn, shown)
        run = getattr(document, "run", None)
        before, self.run = self.run, run if isinstance(run, RunWithStates) else None
        self._read_lines(conn)
        page = self.view.render(conn, document)
        if page.now is not None:
            self.clock_ahead = page.now - datetime.now(UTC)
        rendered = {TROUBLE: _trouble([], None), **page.fragments}
        self.in_page = frozenset(rendered) - set(others)
        told = announcement(before, self.run) if self.run else ""
        return self.fragments.replace(rendered, told)

    def _look(self, conn: Connection) -> None:
        """Have the rows of daemons written often, while somebody views them."""
        if self.view.shows_daemons and time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + LOOK_S
            with suppress(AccessDenied):  # then they are as old as the interval of the sweepers
                execute(conn, look_at_daemons())

    def _read_lines(self, conn: Connection) -> None:
        """Let lines know the run, and the one that undoes it."""
        if self.lines is None or self.run is None:
            return
        self.lines.run = self.run
        if self.run.undo_wanted_at is not None and self.run.undo_run_id is not None:
            self.lines.undo = execute(conn, runs.get_with_states(self.run.undo_run_id))

    def fail(self, error: PgflowdError, since: datetime) -> bool:
        self.in_page |= {TROUBLE}
        return self.fragments.put(TROUBLE, _trouble(error.problems, since))


def _trouble(problems: Sequence[object], since: datetime | None) -> str:
    """Why a page is old, and since when."""
    return render("trouble.html", problems=problems, since=since).fragments[TROUBLE]


class WatchedRun(Watched):
    """The events of a run, in the order of time, as they were read last."""

    def __init__(self, run_id: UUID, payloads: Payloads) -> None:
        super().__init__()
        self._payloads = payloads
        self.lines: OutputLines = _new_lines()
        self._events = RunEvents(run_id)
        self.timeline: Sequence[TimelineEntry] = ()
        self.is_gone = False  # it was deleted

    def read(self, conn: Connection) -> bool:
        new = run_sync(conn, self._events.read())
        self.timeline = self._payloads.of(self._events.timeline)
        self.run = self.lines.run = self._events.run
        self.lines.undo = self._events.undo
        return bool(new) or self._events.has_ended

    def fail(self, error: PgflowdError, since: datetime) -> bool:
        self.is_gone = isinstance(error, NotFound)
        return self.is_gone


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
