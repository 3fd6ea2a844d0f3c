"""
What the watcher reads for all tabs: a page that somebody views, or the events of a run.

The watcher's thread reads and changes it; tabs, in the threads of their event loops, take what is
new for them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from uuid import UUID

from pgflowd.core.documents.runs import RunWithStates, TimelineEntry
from pgflowd.core.payloads import Payloads
from pgflowd.core.timeline import announcement
from pgflowd.db import runs
from pgflowd.db.daemons import look_at_daemons
from pgflowd.db.performing import run_sync
from pgflowd.db.query import execute
from pgflowd.db.run_details import RunEvents
from pgflowd.errors import AccessDenied, NotFound, PgflowdError
from pgflowd.web.connections import Connection
from pgflowd.web.fragments import Fragments, Numbers
from pgflowd.web.output_lines import OutputLines
from pgflowd.web.reading_times import ReadingTimes
from pgflowd.web.rendering import render
from pgflowd.web.text import iso
from pgflowd.web.views import View

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
