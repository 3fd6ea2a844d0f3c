"""
Follows runs to their ends, from any machine that reaches the database.

A follower has the events of its runs notified (`pgflowd.follow`), again every 20 s, and reads a
run whenever a notification reports an event of it. Notifications may be lost, so it also reads
without them: soon after a change, then less often, and for at most a tenth of the time. After ten
quiet seconds it finds a change within one second. When the connection is lost, it waits until the
database is back.

The lines that handlers print come from workers, as long as somebody follows the run, on channels
whose names only who may read runs can know. A line that is lost is not sent again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql

from pgflowd.core.backoff import doubled_s
from pgflowd.core.documents.runs import RunWithStates, TimelineEntry
from pgflowd.core.output_stream import output_line
from pgflowd.core.statuses import RunStatus
from pgflowd.core.timeline import output_entry
from pgflowd.core.undo_timeline import undo_output
from pgflowd.db import runs
from pgflowd.db.connection import translated
from pgflowd.db.operations import run_sync
from pgflowd.db.query import execute
from pgflowd.db.run_events import RunEvents
from pgflowd.errors import AccessDenied, Unreachable, WaitTimeout

MIN_PAUSE_S, MAX_PAUSE_S = 0.1, 1.0  # between two reads, without notifications
MAX_RECONNECT_S = 5.0  # between two attempts to reach a database that is gone
QUIET_S = 0.1  # when no line came for so long after a run's end, there are no more
LAST_LINES_S = 1.0  # the longest wait for lines after a run's end
_WAITING = (RunStatus.WAITING, RunStatus.QUARANTINED)
SHARE = 10  # at most a tenth of the time is spent reading


class Follower:
    """Follows runs to their ends; `ended` has those that ended, as they were then."""

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        run_ids: Sequence[UUID],
        reopen: Callable[[], psycopg.Connection[Any]] | None = None,
    ) -> None:
        self.connection = connection
        self._reopen = reopen
        self.open = list(run_ids)
        self.ended: dict[UUID, RunWithStates] = {}
        self._runs = {run_id: RunEvents(run_id) for run_id in run_ids}
        self._undone: dict[UUID, UUID] = {}  # by the run that undoes it
        self._notified: list[UUID] = []  # runs with notifications since they were read
        self._wants_output = False
        self._output_channels: dict[str, UUID] = {}
        self._is_listening = False
        self._follow_at = 0.0

    def listen(self) -> None:
        """Receive notifications from now on. Changes before can be skipped afterwards."""
        self._listen_on(map(runs.channel, self._followed))
        self._is_listening = True
        self._follow_again()

    def _listen_on(self, channels: Iterable[str]) -> None:
        with translated(self.connection):
            for channel in channels:
                self.connection.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))

    def request_output(self) -> None:
        """Also yield the lines that handlers print from now on."""
        self._wants_output = True
        self._follow_again()

    def skip_past(self) -> None:
        """Do not yield the events so far."""
        for run_id in self.open:
            self._new_events(run_id)

    def follow(self, timeout_s: float | None = None) -> Iterator[TimelineEntry]:
        """
        Yield events until all runs have ended. Raises WaitTimeout; the runs go on.

        A connection that is lost is opened again, if the follower was given a way to do so.
        """
        until = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        while True:
            try:
                yield from self._follow(until, timeout_s)
                return
            except (Unreachable, psycopg.OperationalError):
                if self._reopen is None:
                    raise
                self._reconnect(self._reopen, until)

    def _reconnect(self, reopen: Callable[[], psycopg.Connection[Any]], until: float) -> None:
        self.connection.close()
        pause_s = MIN_PAUSE_S
        while True:
            try:
                self.connection = reopen()
                self.listen()
                return
            except (Unreachable, psycopg.OperationalError):
                if time.monotonic() + pause_s > until:
                    raise
            time.sleep(pause_s)
            pause_s = doubled_s(pause_s, MIN_PAUSE_S, MAX_RECONNECT_S)

    def _follow(self, until: float, timeout_s: float | None) -> Iterator[TimelineEntry]:
        changed_at = time.monotonic()
        due = list(self.open)
        while True:
            if time.monotonic() >= self._follow_at:
                self._follow_again()
            read_at = time.monotonic()
            for run_id in due:
                for entry in self._read(run_id):
                    changed_at = time.monotonic()
                    if entry.is_end:
                        yield from self._last_lines()
                    yield entry
            if not self.open:
                return
            now = time.monotonic()
            left_s = until - now
            if left_s <= 0:
                raise _timed_out(self.open, timeout_s, self._statuses)
            pause_s = max((now - changed_at) / SHARE, MIN_PAUSE_S, (now - read_at) * SHARE)
            due = yield from self._pause(
                min(now + min(pause_s, MAX_PAUSE_S, left_s), self._follow_at)
            )

    def _read(self, run_id: UUID) -> list[TimelineEntry]:
        """The new events of a run, if it was open."""
        if run_id not in self.open:
            return []
        new = self._new_events(run_id)
        run = self._runs[run_id].run
        if run is not None and run.has_ended:
            self.open.remove(run_id)
            self.ended[run_id] = run
        return new

    def _new_events(self, run_id: UUID) -> list[TimelineEntry]:
        """The new events of a run; from now on those of its undo are notified, too."""
        events = self._runs[run_id]
        new = run_sync(self.connection, events.read())
        if events.undo is not None and events.undo.run_id not in self._undone:
            self._undone[events.undo.run_id] = run_id
            self._listen_on([runs.channel(events.undo.run_id)])
            self._follow_again()
        return new

    def _pause(self, until: float) -> Generator[TimelineEntry, None, list[UUID]]:
        """Yield lines of output until a run has changed; return the runs to read."""
        while not self._notified and (left_s := until - time.monotonic()) > 0:
            yield from self._receive(left_s)
        notified, self._notified = dict.fromkeys(self._notified), []
        return [run_id for run_id in self.open if run_id in notified] or list(self.open)

    def _last_lines(self) -> Iterator[TimelineEntry]:
        """The lines of a run that has ended which are still on their way."""
        until = time.monotonic() + (LAST_LINES_S if self._wants_output else 0.0)
        while time.monotonic() < until and (lines := self._receive(QUIET_S)):
            yield from lines

    def _receive(self, max_s: float) -> list[TimelineEntry]:
        """Wait for notifications: each is about a change, or a line that a handler printed."""
        with translated(self.connection):
            notices = list(self.connection.notifies(timeout=max_s, stop_after=1))
        by_channel = {runs.channel(run_id): run_id for run_id in self._runs}
        by_channel |= {runs.channel(undo): run_id for undo, run_id in self._undone.items()}
        lines = []
        for notice in notices:
            if notice.channel in by_channel:
                self._notified.append(by_channel[notice.channel])
            elif told := self._line(notice):
                lines.append(told)
        return lines

    def _line(self, notice: psycopg.Notify) -> TimelineEntry | None:
        """What a handler of a run, or of its undo, has printed."""
        run_id = self._output_channels.get(notice.channel)
        line = output_line(notice.payload)
        if line is None or run_id is None:
            return None
        events = self._runs[self._undone.get(run_id, run_id)]
        if events.run is None:
            return None
        if run_id == events.run_id:
            return output_entry(events.run, line)
        return None if events.undo is None else undo_output(events.run, events.undo, line)

    @property
    def _statuses(self) -> dict[UUID, RunStatus]:
        return {each.run.run_id: each.run.status for each in self._runs.values() if each.run}

    @property
    def _followed(self) -> list[UUID]:
        """The open runs, and those that undo one of them."""
        return [*self.open, *(undo for undo, run_id in self._undone.items() if run_id in self.open)]

    def _follow_again(self) -> None:
        """Have events notified, and the lines that handlers print; again soon, or in time."""
        self._follow_at = float("inf")
        if not self._is_listening or not self.open:
            return
        if self._wants_output:
            try:
                channels = execute(self.connection, runs.output_channels(self._followed))
                self._output_channels.update(channels)
                self._listen_on(self._output_channels)
            except AccessDenied:  # the timeline is complete without
                self._wants_output = False
        query = runs.follow(self._followed, with_output=self._wants_output)
        self._follow_at = time.monotonic() + execute(self.connection, query)


def _timed_out(
    run_ids: Sequence[UUID], timeout_s: float | None, statuses: Mapping[UUID, RunStatus]
) -> WaitTimeout:
    waiting = [each for each in run_ids if statuses[each] in _WAITING]
    is_one = len(run_ids) == 1
    which, goes_on = (
        (f"run {run_ids[0]}", "it goes on") if is_one else (f"{len(run_ids)} runs", "they go on")
    )
    remedy = f"`pgflowd runs wait {run_ids[0]}` waits again, `pgflowd runs cancel` ends it"
    paused = [each for each in run_ids if statuses[each] is RunStatus.PAUSED]
    if paused:
        goes_on = "it is paused" if is_one else f"{len(paused)} of them are paused"
        remedy = f"`pgflowd runs resume {paused[0]}` lets it go on"
    elif waiting:
        goes_on = "it waits" if is_one else f"{len(waiting)} of them are waiting"
        remedy = f"`pgflowd runs show {waiting[0]}` says for what"
    error = WaitTimeout(f"{which} did not end within {timeout_s:g} s; {goes_on}", next=remedy)
    error.run_id = run_ids[0]
    return error
