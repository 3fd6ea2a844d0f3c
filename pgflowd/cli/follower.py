"""
Follow: tells the story of runs while it happens, from any machine that reaches the database.

The events of a run are notifications; each one is only a nudge to look. Without them, and for
what has no event, it looks by itself: soon after something happened, more rarely as time
passes, and never for more than a tenth of the time. So what happens after a silence of ten
seconds is seen within one. A database that goes away is waited for.

What handlers print comes on the same channels as soon as it was asked for, from workers that
hear notifications. It is told as it comes, and what is lost on its way is not asked for again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql

from pgflowd.cli.terminal.timeline import TimelineEntry, said_by, timeline_of
from pgflowd.core.output_stream import RENEW_S, line_in
from pgflowd.db import client_steps, overview, runs
from pgflowd.db.connection import translated
from pgflowd.db.operations import run_sync
from pgflowd.db.overview import Trouble
from pgflowd.db.query import execute as perform
from pgflowd.db.runs import RunWithStates
from pgflowd.errors import AccessDenied, Unreachable, WaitTimeout

SHORTEST_NAP_S = 0.1
LONGEST_NAP_S = 1.0
LONGEST_WAIT_S = 5.0  # for a database that is gone
LAST_WORDS_S = 0.1  # after a run's end: lines may come later than the outcome
MOST_LAST_WORDS_S = 1.0
SHARE = 10  # of the time at most one in so many is spent looking


class Follower:
    """Follows runs to their ends; `ended` has those that are over, as they were then."""

    def __init__(
        self,
        conn: psycopg.Connection[Any],
        run_ids: Sequence[UUID],
        reopen: Callable[[], psycopg.Connection[Any]] | None = None,
    ) -> None:
        self.conn = conn
        self._reopen = reopen
        self.open = list(run_ids)
        self.ended: dict[UUID, RunWithStates] = {}
        self._told: dict[UUID, set[tuple[Any, ...]]] = {run_id: set() for run_id in run_ids}
        self._may_see_troubles = True
        self._seen: dict[UUID, RunWithStates] = {}
        self._nudged: list[UUID] = []
        self._overhears = False
        self._ask_at = 0.0

    def listen(self) -> None:
        """Hear of everything from now on. A story known before can be passed over then."""
        with translated(self.conn):
            for run_id in self.open:
                channel = sql.Identifier(runs.channel(run_id))
                self.conn.execute(sql.SQL("listen {}").format(channel))
        self._ask_at = 0.0

    def overhear(self) -> None:
        """Also tell what handlers print, from now on."""
        self._overhears = True
        self._ask_for_output()

    def pass_over(self) -> None:
        """What has happened so far is known."""
        for run_id in self.open:
            self._new(run_id, run_sync(self.conn, client_steps.get_with_states(run_id)))

    def follow(self, timeout_s: float | None = None) -> Iterator[TimelineEntry]:
        """Tell what happens, until all runs have ended. WaitTimeout: they go on.

        Where it can be opened again, a database that is gone for a while is waited for.
        """
        until = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        while True:
            try:
                yield from self._follow(until, timeout_s)
                return
            except (Unreachable, psycopg.OperationalError):
                if self._reopen is None:
                    raise
                self._come_back(self._reopen, until)

    def _come_back(self, reopen: Callable[[], psycopg.Connection[Any]], until: float) -> None:
        """Open another connection, as soon as there is a database again."""
        self.conn.close()
        nap_s = SHORTEST_NAP_S
        while True:
            try:
                self.conn = reopen()
                self.listen()
                return
            except (Unreachable, psycopg.OperationalError):
                if time.monotonic() + nap_s > until:
                    raise
            time.sleep(nap_s)
            nap_s = min(nap_s * 2, LONGEST_WAIT_S)

    def _follow(self, until: float, timeout_s: float | None) -> Iterator[TimelineEntry]:
        changed = time.monotonic()
        asked = list(self.open)
        while True:
            self._ask_for_output()
            looking = time.monotonic()
            for run_id in asked:
                for happening in self._look(run_id):
                    changed = time.monotonic()
                    if happening.is_end:
                        yield from self._last_words()
                    yield happening
            if not self.open:
                return
            now = time.monotonic()
            left_s = until - now
            if left_s <= 0:
                raise _too_late(self.open, timeout_s)
            nap_s = max((now - changed) / SHARE, SHORTEST_NAP_S, (now - looking) * SHARE)
            asked = yield from self._rest(now + min(nap_s, LONGEST_NAP_S, left_s))

    def _look(self, run_id: UUID) -> list[TimelineEntry]:
        """What is new in a run."""
        if run_id not in self.open:
            return []
        run = self._seen[run_id] = run_sync(self.conn, client_steps.get_with_states(run_id))
        new = self._new(run_id, run)
        if run.has_ended:
            self.open.remove(run_id)
            self.ended[run_id] = run
        return new

    def _new(self, run_id: UUID, run: RunWithStates) -> list[TimelineEntry]:
        story = timeline_of(run, self._troubles(run_id))
        new = [happening for happening in story if happening.key not in self._told[run_id]]
        self._told[run_id].update(happening.key for happening in new)
        return new

    def _troubles(self, run_id: UUID) -> list[Trouble]:
        """The attempts that failed, unless this role may only read runs."""
        if not self._may_see_troubles:
            return []
        try:
            return perform(self.conn, overview.run_troubles(run_id))
        except AccessDenied:
            self._may_see_troubles = False
            return []

    def _rest(self, until: float) -> Generator[TimelineEntry, None, list[UUID]]:
        """Tell what handlers print, until there is a nudge; return the runs to look at."""
        while not self._nudged and (left_s := until - time.monotonic()) > 0:
            yield from self._heard(left_s)
        nudged, self._nudged = dict.fromkeys(self._nudged), []
        return [run_id for run_id in self.open if run_id in nudged] or list(self.open)

    def _last_words(self) -> Iterator[TimelineEntry]:
        """What the handlers of a run that has ended said, and that is still on its way."""
        until = time.monotonic() + (MOST_LAST_WORDS_S if self._overhears else 0.0)
        while time.monotonic() < until:
            heard = self._heard(LAST_WORDS_S)
            if not heard:
                return
            yield from heard

    def _heard(self, longest_s: float) -> list[TimelineEntry]:
        """Wait for notifications: each is a nudge, or a line that a handler has printed."""
        with translated(self.conn):
            notices = list(self.conn.notifies(timeout=longest_s, stop_after=1))
        by_channel = {runs.channel(run_id): run_id for run_id in self._told}
        heard = []
        for notice in notices:
            run_id = by_channel.get(notice.channel)
            line = line_in(notice.payload)
            if run_id is None:
                continue
            if line is None:
                self._nudged.append(run_id)
            elif self._overhears and run_id in self._seen:
                heard.append(said_by(self._seen[run_id], line))
        return heard

    def _ask_for_output(self) -> None:
        """Say that we follow, so that workers send us what handlers print; and again in time."""
        now = time.monotonic()
        if self._overhears and self.open and now >= self._ask_at:
            try:
                perform(self.conn, runs.ask_for_output(self.open))
            except AccessDenied:  # the story can be told without
                self._overhears = False
            self._ask_at = now + RENEW_S


def _too_late(run_ids: Sequence[UUID], timeout_s: float | None) -> WaitTimeout:
    which = f"run {run_ids[0]}" if len(run_ids) == 1 else f"{len(run_ids)} runs"
    goes_on = "it goes on" if len(run_ids) == 1 else "they go on"
    error = WaitTimeout(
        f"{which} did not end within {timeout_s:g} s; {goes_on}",
        next=f"`pgflowd runs wait {run_ids[0]}` waits again, `pgflowd runs cancel` ends it",
    )
    error.run_id = run_ids[0]
    return error
