"""
Follow: tells the story of runs while it happens, from any machine that reaches the database.

The events of a run are notifications; each one is only a nudge to look. Without them, and for
what has no event, it looks by itself: soon after something happened, more rarely as time
passes, and never for more than a tenth of the time. So what happens after a silence of ten
seconds is seen within one. A database that goes away is waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql

from pgflowd.cli.story import Happening, story_of
from pgflowd.db import overview, runs, scripts
from pgflowd.db.calls import run as perform
from pgflowd.db.connection import translated
from pgflowd.db.overview import Trouble
from pgflowd.db.play import play
from pgflowd.db.runs import RunWithStates
from pgflowd.errors import AccessDenied, Unreachable, WaitTimeout

SHORTEST_NAP_S = 0.1
LONGEST_NAP_S = 1.0
LONGEST_WAIT_S = 5.0  # for a database that is gone
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

    def listen(self) -> None:
        """Hear of everything from now on. A story known before can be passed over then."""
        with translated(self.conn):
            for run_id in self.open:
                channel = sql.Identifier(runs.channel(run_id))
                self.conn.execute(sql.SQL("listen {}").format(channel))

    def pass_over(self) -> None:
        """What has happened so far is known."""
        for run_id in self.open:
            self._new(run_id, play(self.conn, scripts.get_with_states(run_id)))

    def follow(self, timeout_s: float | None = None) -> Iterator[Happening]:
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

    def _follow(self, until: float, timeout_s: float | None) -> Iterator[Happening]:
        changed = time.monotonic()
        asked = list(self.open)
        while True:
            looking = time.monotonic()
            for run_id in asked:
                for happening in self._look(run_id):
                    changed = time.monotonic()
                    yield happening
            if not self.open:
                return
            now = time.monotonic()
            left_s = until - now
            if left_s <= 0:
                raise _too_late(self.open, timeout_s)
            nap_s = max((now - changed) / SHARE, SHORTEST_NAP_S, (now - looking) * SHARE)
            asked = self._nap(min(nap_s, LONGEST_NAP_S, left_s))

    def _look(self, run_id: UUID) -> list[Happening]:
        """What is new in a run."""
        if run_id not in self.open:
            return []
        run = play(self.conn, scripts.get_with_states(run_id))
        new = self._new(run_id, run)
        if run.has_ended:
            self.open.remove(run_id)
            self.ended[run_id] = run
        return new

    def _new(self, run_id: UUID, run: RunWithStates) -> list[Happening]:
        story = story_of(run, self._troubles(run_id))
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

    def _nap(self, longest_s: float) -> list[UUID]:
        """Wait for a nudge; return the runs to look at."""
        by_channel = {runs.channel(run_id): run_id for run_id in self.open}
        nudged = []
        with translated(self.conn):
            for notice in self.conn.notifies(timeout=longest_s, stop_after=1):
                nudged.append(by_channel.get(notice.channel))
        found = [run_id for run_id in dict.fromkeys(nudged) if run_id is not None]
        return found or list(self.open)


def _too_late(run_ids: Sequence[UUID], timeout_s: float | None) -> WaitTimeout:
    which = f"run {run_ids[0]}" if len(run_ids) == 1 else f"{len(run_ids)} runs"
    goes_on = "it goes on" if len(run_ids) == 1 else "they go on"
    error = WaitTimeout(
        f"{which} did not end within {timeout_s:g} s; {goes_on}",
        next=f"`pgflowd runs wait {run_ids[0]}` waits again, `pgflowd runs cancel` ends it",
    )
    error.run_id = run_ids[0]
    return error
