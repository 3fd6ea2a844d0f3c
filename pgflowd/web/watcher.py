"""
The watcher: reads what somebody views, once for all tabs, and wakes them when it has changed.

It is a task with a thread and two connections: one reads, one listens. It starts with the first
tab, ends a while after the last, and knows nothing that the next one would miss. While the database
is away, pages say so and how old they are; it tries again until the database is back.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import NamedTuple
from uuid import UUID

import psycopg

from pgflowd.core.backoff import doubled_s
from pgflowd.core.documents.runs import RunWithStates, TimelineEntry
from pgflowd.core.output_stream import output_line
from pgflowd.core.payloads import Payloads
from pgflowd.core.timeline import announcement, output_entry, undo_output
from pgflowd.db import runs
from pgflowd.db.connection import translated
from pgflowd.db.daemons import look_at_daemons
from pgflowd.db.following import Channels
from pgflowd.db.performing import run_sync
from pgflowd.db.query import execute
from pgflowd.db.run_details import RunEvents
from pgflowd.errors import AccessDenied, Bug, NotFound, PgflowdError, Unreachable
from pgflowd.web.pages.page import Connection
from pgflowd.web.rendering import View, render
from pgflowd.web.text import iso

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
# The watcher's thread reads and changes it; tabs, in the thread of the event loop, take what is new
# for them.
OPEN_S = 2.0  # between two readings without a notification
ENDED_S = 10.0  # of a run that has ended; a retry opens it again
MAX_SHOWN = 2000  # rows that are kept right though a list has them no more
LOOK_S = 25.0  # a look at daemons lasts a minute: one may be lost
TROUBLE = "trouble"  # the fragment that says why a page is old


class Tab:
    """Somebody who views something; subclasses know what of it he has."""

    watched: Watched  # once the watcher knows the tab

    def __init__(self, shown: Sequence[str] = ()) -> None:
        self.shown = frozenset(shown)  # the ids of the rows that the tab shows
        self.line: int | None = None  # the last line of output that it has
        self.news = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def take(self) -> tuple[bytes, str | None]:
        """What is new, as events; and why the stream ends, if it does."""
        raise NotImplementedError

    def lines(self) -> tuple[int | None, Sequence[Line]]:
        """New lines of output, and how many before them are not kept; None: it is unknown."""
        lines = self.watched.lines
        if lines is None:
            return 0, ()
        missed, found = lines.after(lines.last if self.line is None else self.line)
        self.line = found[-1].number if found else lines.last
        return missed, found

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
        self.undo: RunWithStates | None = None  # the run that undoes it, where lines are shown

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

    def read(self, conn: Connection) -> bool:
        """Read it; whether anything is new."""
        raise NotImplementedError

    def fail(self, error: PgflowdError, since: datetime) -> bool:
        """It cannot be read; whether that is new."""
        return False

    def hear(self, run_id: UUID, payload: str) -> bool:
        """Take a line of output; whether there is anything new."""
        line = output_line(payload)
        if self.lines is None or self.run is None or line is None:
            return False
        if run_id == self.run.run_id:
            entry: TimelineEntry | None = output_entry(self.run, line)
        else:
            entry = undo_output(self.run, self.undo, line) if self.undo else None
        if entry is not None:
            self.lines.add(entry, time.monotonic())
        return entry is not None

    @property
    def now(self) -> str:
        """The time of the database, by which the script tells how long ago something was."""
        return iso(datetime.now(UTC) + self.clock_ahead)

    def tell(self, is_new: bool) -> None:
        """Wake the tabs if anything is new, as the first reading is."""
        if is_new or not self.was_read:
            self.was_read = True
            for tab in self.tabs:
                tab.wake()


class WatchedPage(Watched):
    """A page, and its fragments as they were rendered last."""

    def __init__(self, view: View, numbers: Numbers) -> None:
        super().__init__()
        self.view = view
        self.fragments = Fragments(numbers)
        self.in_page: frozenset[str] = frozenset()  # ids of what a new reader would see
        self._look_at = 0.0
        if ("view", "output") in view.query:  # it shows what handlers print from now on
            self.lines = OutputLines()

    def read(self, conn: Connection) -> bool:
        is_of_daemons = self.view.page.path.startswith("/daemons")
        if is_of_daemons and time.monotonic() >= self._look_at:
            # have their rows written often, while somebody views them
            self._look_at = time.monotonic() + LOOK_S
            with suppress(AccessDenied):  # then they are as old as the interval of the sweepers
                execute(conn, look_at_daemons())
        shown = sorted(frozenset[str]().union(*(tab.shown for tab in self.tabs)))[:MAX_SHOWN]
        document, others = self.view.read_with(conn, shown)
        before, run = self.run, getattr(document, "run", None)
        self.run = run if isinstance(run, RunWithStates) else None
        if (run := self.run) and self.lines and run.undo_wanted_at and run.undo_run_id:
            self.undo = execute(conn, runs.get_with_states(run.undo_run_id))
        page = self.view.render(conn, document)
        if page.now is not None:
            self.clock_ahead = page.now - datetime.now(UTC)
        rendered = {TROUBLE: _trouble([], None), **page.fragments}
        self.in_page = frozenset(rendered) - set(others)
        told = announcement(before, self.run) if self.run else ""
        return self.fragments.replace(rendered, told)

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
        self.lines = OutputLines()
        self._events = RunEvents(run_id)
        self.timeline: Sequence[TimelineEntry] = ()
        self.is_gone = False  # it was deleted

    def read(self, conn: Connection) -> bool:
        new = run_sync(conn, self._events.read())
        self.timeline = self._payloads.of(self._events.timeline)
        self.run, self.undo = self._events.run, self._events.undo
        return bool(new) or self._events.has_ended

    def fail(self, error: PgflowdError, since: datetime) -> bool:
        self.is_gone = isinstance(error, NotFound)
        return self.is_gone


Open = Callable[[], Connection]

IDLE_S = 10.0  # after the last tab: one that reloads finds what it knows
MAX_WATCHED = 600  # different pages and runs at once
_MIN_RECONNECT_S, _MAX_RECONNECT_S = 0.25, 2.0

log = logging.getLogger(__name__)


class Watcher:
    """All that is viewed; and the task that has it read, from the first tab to the last."""

    def __init__(self, open_reading: Open, open_listening: Open) -> None:
        self.numbers = Numbers(secrets.token_hex(4))
        self._open = open_reading, open_listening
        self._watched: dict[Hashable, Watched] = {}
        self._wake: Callable[[], object] = lambda: None  # the task; in the thread of its loop
        self._loop: asyncio.AbstractEventLoop | None = None  # of the task, if there is one

    def enter(self, key: Hashable, make: Callable[[], Watched], tab: Tab) -> None:
        """Let a tab view something, which is read from now on."""
        watched = self._watched.get(key)
        if watched is None:
            if len(self._watched) >= MAX_WATCHED:
                text = f"{MAX_WATCHED} different pages are viewed already"
                raise Unreachable(text, next="try again in a moment")
            watched = self._watched[key] = make()
        tab.watched = watched
        if tab.line is None and watched.lines is not None:
            tab.line = watched.lines.last
        watched.tabs |= {tab}
        watched.times.hurry()
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, woken = loop, asyncio.Event()
            self._wake = woken.set
            self._task = loop.create_task(self._watch(woken))
        self._wake()

    def leave(self, tab: Tab) -> None:
        """The tab is gone."""
        tab.watched.tabs -= {tab}
        tab.watched.left_at = time.monotonic()
        self._wake()

    def stop(self) -> None:
        """Let the task end, and its connections; called in any thread."""
        self._watched.clear()
        if self._loop is not None:
            with suppress(RuntimeError):  # it is closed
                self._loop.call_soon_threadsafe(self._wake)

    async def _watch(self, woken: asyncio.Event) -> None:
        reading, thread = _Reading(*self._open), ThreadPoolExecutor(1, "pgflowd-watcher")
        loop = asyncio.get_running_loop()
        try:
            while True:
                before = time.monotonic() - IDLE_S
                for key, each in list(self._watched.items()):
                    if not each.tabs and each.left_at <= before:  # nobody has viewed it for a while
                        self._watched.pop(key, None)
                if not (viewed := list(self._watched.values())):
                    return
                woken.clear()
                until = await loop.run_in_executor(thread, reading.turn, viewed)
                heard = reading.socket
                if heard is not None:
                    loop.add_reader(heard, woken.set)
                try:
                    async with asyncio.timeout(until - time.monotonic()):
                        await woken.wait()
                except TimeoutError:
                    pass
                finally:
                    if heard is not None:
                        loop.remove_reader(heard)
        finally:
            self._loop = None if self._loop is loop else self._loop  # the next tab starts a task
            thread.submit(reading.close)
            thread.shutdown(wait=False)


class _Reading:
    """Reads what is due, and hears of the runs that somebody views, on one connection each."""

    def __init__(self, open_reading: Open, open_listening: Open) -> None:
        self._open_reading, self._open_listening = open_reading, open_listening
        self._conn: Connection | None = None
        self._listening: Connection | None = None
        self._channels = Channels()
        self._away_since: datetime | None = None
        self._pause_s = 0.0
        self._try_at = 0.0
        self._listen_at = 0.0

    @property
    def socket(self) -> int | None:
        """On which notifications come."""
        conn = self._listening
        return None if conn is None or conn.closed else conn.pgconn.socket

    def close(self) -> None:
        for conn in (self._conn, self._listening):
            if conn is not None:
                conn.pgconn.finish()
        self._conn, self._listening, self._channels = None, None, Channels()

    def turn(self, viewed: Sequence[Watched]) -> float:
        """Read what is due; return when something will be, by the monotonic clock."""
        if time.monotonic() >= self._try_at:
            try:
                for each in sorted(viewed, key=lambda one: one.times.due_at):
                    if each.tabs and each.times.due_at <= time.monotonic():
                        self._read(each)
                self._pause_s = 0.0
            except Exception as error:  # the database is gone: say so, and try again in a moment
                self.close()
                self._pause_s = doubled_s(self._pause_s, _MIN_RECONNECT_S, _MAX_RECONNECT_S)
                self._try_at = time.monotonic() + self._pause_s
                self._away_since = self._away_since or datetime.now(UTC)
                known = _known(error)
                for each in viewed:
                    each.times.hurry()
                    each.tell(each.fail(known, self._away_since))
            else:
                self._hear(viewed)
        due = [each.times.due_at if each.tabs else each.left_at + IDLE_S for each in viewed]
        return max(min([*due, self._channels.follow_at]), self._try_at)

    def _read(self, watched: Watched) -> None:
        if self._conn is None or self._conn.closed:
            self._conn = self._open_reading()
            self._away_since = None
        began = time.monotonic()
        try:
            is_new = watched.read(self._conn)
        except Exception as error:  # the other pages go on
            if self._conn.closed:
                raise
            is_new = watched.fail(_known(error), datetime.now(UTC))
        every_s = ENDED_S if watched.run is not None and watched.run.has_ended else OPEN_S
        watched.times.was_read(began, time.monotonic(), every_s)
        watched.tell(is_new)

    def _hear(self, viewed: Sequence[Watched]) -> None:
        """
        Hear of the runs that are viewed; read soon what may have been missed before. Without it
        pages are read all the same, only less often.
        """
        if time.monotonic() < self._listen_at:
            return
        wanted: dict[UUID, bool] = {}
        for each in viewed:
            for run_id, with_output in each.followed.items():
                wanted[run_id] = wanted.get(run_id, False) or with_output
        if self._listening is None and not wanted:
            return
        try:
            if self._listening is None:
                self._listening = self._open_listening()
            news = run_sync(self._listening, self._channels.follow(wanted))
            with translated(self._listening):
                heard = self._channels.heard(self._listening.notifies(timeout=0))
        except Exception as error:  # whether the database is away, the next reading finds out
            if self._listening is not None:
                self._listening.pgconn.finish()
            self._listening, self._channels = None, Channels()
            self._listen_at = time.monotonic() + _MAX_RECONNECT_S
            _known(error)
            return
        news |= {run_id for run_id, _, is_output in heard if not is_output}
        for each in viewed:
            if news & each.followed.keys():
                each.times.hurry()
            lines = [each.hear(run_id, payload) for run_id, payload, is_output in heard
                     if is_output and run_id in each.followed]  # fmt: skip
            if any(lines):
                each.tell(True)


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


# The fragments of one document, each with the number of its last change.
#
# A tab has seen all changes up to a number, and asks for those after it. It gets the newest version
# of each fragment, so one that is slow skips versions and never sees an old one after a new one.
# The watcher changes them in its thread, while tabs read in theirs: a change replaces all at once.
#
# Server-sent events, as they go over the line.
#
# An event has a kind, lines of data and perhaps an id; a browser sends the id of the last one when
# it connects again.
_LINE_END = re.compile("\r\n|\r|\n")  # what the format takes for one; str.splitlines knows others


def event(kind: str, data: str, id: str | None = None) -> bytes:
    """An event; one without an id leaves the last id as it is."""
    lines = [f"event: {kind}"] if kind else []
    if id is not None:
        lines.append(f"id: {id}")
    lines += [f"data: {line}" for line in _LINE_END.split(data)]
    return "\n".join([*lines, "", ""]).encode()


FRAGMENT, REMOVED, ANNOUNCE = "fragment", "removed", "announce"
# what changes with each reading, such as `4s ago`: browsers do that themselves
_TIMES = re.compile(r"(<(?:time|tspan) [^<>]*data-(?:ago|since|until)[^<>]*>)[^<>]*")
MAX_ANNOUNCED = 10  # that a tab hears of which was away for a moment


class Numbers:
    """The numbers of all changes that a process has seen, and the id that each has in a stream."""

    def __init__(self, start: str) -> None:
        self.start = start  # what no other process has
        self._count = count(1)

    def next(self) -> int:
        return next(self._count)

    def id(self, number: int) -> str:
        return f"{self.start}.{number}"

    def read(self, id: str) -> int:
        """The number of an id; 0, which comes before all, if another process gave it."""
        start, _, number = id.partition(".")
        is_ours = start == self.start and number.isascii() and number.isdigit()
        return int(number) if is_ours and len(number) <= 18 else 0


@dataclass(frozen=True)
class Change:
    """What a tab is told: a fragment, that one is gone, or what to announce."""

    number: int
    kind: str
    id: str
    data: str  # the id of a fragment and its HTML; of one that is gone the id; or what to announce
    event: bytes  # the same as it goes over the line, to all tabs alike


class Fragments:
    """What a page consists of, as it was rendered last."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        self._html: dict[str, str] = {}
        self._told: dict[str, str] = {}  # the same without the words of its times
        self._announced = count()
        self._last: dict[str, Change] = {}  # of each fragment, and announcements; by their numbers
        self._changes: tuple[Change, ...] = ()

    def replace(self, html: Mapping[str, str], announce: str = "") -> bool:
        """Take all fragments of a page that was rendered again; whether anything has changed."""
        changed = [self._change(REMOVED, id, id) for id in self._html if id not in html]
        told = {id: _TIMES.sub(r"\1", text) for id, text in html.items()}
        changed += [
            self._change(FRAGMENT, id, f"{id}\n{html[id]}")
            for id, text in told.items() if self._told.get(id) != text
        ]  # fmt: skip
        self._html, self._told = dict(html), told
        if announce:
            place = f" {next(self._announced) % MAX_ANNOUNCED}"  # no id of a fragment
            changed.append(self._change(ANNOUNCE, place, announce))
        for change in changed:
            self._last.pop(change.id, None)
            self._last[change.id] = change
        self._changes = tuple(self._last.values())
        return bool(changed)

    def put(self, id: str, html: str) -> bool:
        """Replace one fragment, and leave the others; whether it has changed."""
        return self.replace({**self._html, id: html})

    def after(self, number: int) -> list[Change]:
        """The changes after this number, in their order."""
        return [change for change in self._changes if change.number > number]

    def _change(self, kind: str, id: str, data: str) -> Change:
        number = self._numbers.next()
        return Change(number, kind, id, data, event(kind, data, self._numbers.id(number)))


MAX_LINES = 1000
KEPT_S = 60.0


class Line(NamedTuple):
    """A line; the next one has the next number."""

    number: int
    at: float
    entry: TimelineEntry


class OutputLines:
    """The lines of a run, and of the run that undoes it."""

    def __init__(self, began_ms: int | None = None) -> None:
        """`began_ms`: of Unix time, by default now; another process gives other numbers."""
        began_ms = time.time_ns() // 1_000_000 if began_ms is None else began_ms
        self.last = self._before = began_ms  # the numbers of the newest line, and before the first
        self._kept: deque[Line] = deque(maxlen=MAX_LINES)

    def add(self, entry: TimelineEntry, now: float) -> None:
        """Keep a line."""
        while self._kept and self._kept[0].at < now - KEPT_S:
            self._kept.popleft()
        self._kept.append(Line(self.last + 1, now, entry))
        self.last += 1

    def after(self, number: int) -> tuple[int | None, Sequence[Line]]:
        """The lines after this number, and how many between are not kept; None: it is unknown."""
        found = [line for line in self._kept.copy() if line.number > number]
        if not self._before <= number <= self.last:
            return None, found
        first = found[0].number if found else self.last + 1
        return first - number - 1, found
