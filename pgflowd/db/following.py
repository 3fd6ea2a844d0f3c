"""
Follows runs to their ends, from any machine that reaches the database: one operation, for waits,
for events of clients and commands, and, but for the reading, for the dashboard.

A follower has the events of its runs notified (`pgflowd.follow`), again every 20 s, and reads a
run whenever a notification reports an event of it. Notifications may be lost, and through a pooler
none come, so it also reads without them: soon after a change, then less often, at least once per
second, and for at most a tenth of the time. When the connection is lost, it goes on with another
one.

The lines that handlers print come from workers, as long as somebody follows the run, on channels
whose names only who may read runs can know. A line that is lost is not sent again.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar
from uuid import UUID

import psycopg

from pgflowd.core.backoff import doubled_s
from pgflowd.core.documents.runs import Run, RunWithStates, TimelineEntry
from pgflowd.core.output_stream import output_line
from pgflowd.core.statuses import RunStatus
from pgflowd.core.timeline import output_entry, undo_output
from pgflowd.db import runs
from pgflowd.db.operations import Hears, Listen, Notices, Operation, get
from pgflowd.errors import AccessDenied, RunError, WaitTimeout

AnyRun = TypeVar("AnyRun", bound=Run)
AnyRead = TypeVar("AnyRead", bound=Run, covariant=True)

MIN_PAUSE_S, MAX_PAUSE_S = 0.05, 1.0  # between two reads, without notifications
MIN_RECONNECT_S, MAX_RECONNECT_S = 0.1, 5.0  # between two attempts to connect again
QUIET_S = 0.1  # when no line came for so long after a run's end, there are no more
LAST_LINES_S = 1.0  # the longest wait for lines after a run's end
SHARE = 10  # at most a tenth of the time is spent reading

# while it has one of these, nobody notifies of its end
_QUIET = (RunStatus.SCHEDULED, RunStatus.BLOCKED, RunStatus.UNDOING)
_WAITING = (RunStatus.WAITING, RunStatus.QUARANTINED)


class Heard(NamedTuple):
    """A notification about a run: of an event, or a line that a handler has printed."""

    run_id: UUID
    payload: str
    is_output: bool


class Channels:
    """The channels of runs on one connection, and until when somebody notifies there."""

    def __init__(self, *, is_followed: bool = False) -> None:
        self._runs: dict[str, UUID] = {}
        self._outputs: dict[str, UUID] = {}
        self._may_hear_output = True
        self._is_followed = is_followed  # the runs are followed since a moment ago
        self._follow_at = 0.0

    @property
    def follow_at(self) -> float:
        """When to call `follow` again, by the monotonic clock."""
        return self._follow_at if self._runs else float("inf")

    def follow(self, wanted: Mapping[UUID, bool]) -> Operation[set[UUID]]:
        """
        Hear of these runs and no others from now on, and of their output where that is true.

        Return the runs to read now, since what happened in them before may not have been heard.
        """
        if not (yield Hears()):
            return set()
        loud = {run_id for run_id, is_wanted in wanted.items() if is_wanted}
        new = wanted.keys() - set(self._runs.values())
        new |= loud - set(self._outputs.values()) if self._may_hear_output else set()
        if new or len(wanted) < len(self._runs) or len(loud) < len(self._outputs):
            yield from self._listen(wanted, loud)
        now = time.monotonic()
        if not wanted or (not new and now < self._follow_at):
            return set()
        pauses = [runs.FOLLOW_AGAIN_S]
        if not self._is_followed:
            for run_ids, with_output in ((wanted.keys() - loud, False), (loud, True)):
                if run_ids:
                    with_output = with_output and self._may_hear_output
                    pauses.append((yield runs.follow(list(run_ids), with_output=with_output)))
        self._is_followed = False
        self._follow_at = now + min(pauses)
        return set(wanted) if min(pauses) < runs.FOLLOW_AGAIN_S else set(new)

    def _listen(self, wanted: Collection[UUID], loud: set[UUID]) -> Operation[None]:
        channels = {runs.channel(run_id): run_id for run_id in wanted}
        outputs = {name: run_id for name, run_id in self._outputs.items() if run_id in loud}
        if self._may_hear_output and (new := loud - set(outputs.values())):
            try:
                outputs |= yield runs.output_channels(list(new))
            except AccessDenied:  # the rest is complete without
                self._may_hear_output = False
        before, after = {*self._runs, *self._outputs}, {*channels, *outputs}
        yield Listen(after - before, before - after)
        self._runs, self._outputs = channels, outputs

    def heard(self, notices: Iterable[psycopg.Notify]) -> list[Heard]:
        """What notifications say about these runs."""
        found = []
        for notice in notices:
            if run_id := self._runs.get(notice.channel):
                found.append(Heard(run_id, notice.payload, False))
            elif run_id := self._outputs.get(notice.channel):
                found.append(Heard(run_id, notice.payload, True))
        return found


class Read(Protocol[AnyRead]):
    """A run as it was read last: `Glance`, or `run_events.RunEvents`."""

    @property
    def run_id(self) -> UUID: ...
    @property
    def run(self) -> AnyRead | None: ...
    @property
    def undo(self) -> RunWithStates | None: ...

    def read(self) -> Operation[list[TimelineEntry]]: ...
    def is_news(self, payload: str) -> bool: ...


class Glance:
    """A run for which somebody waits: its end alone is news, and nothing else of it is read."""

    undo = None

    def __init__(self, run_id: UUID) -> None:
        self.run_id = run_id
        self.run: Run | None = None

    def read(self) -> Operation[list[TimelineEntry]]:
        self.run = yield from get(self.run_id)
        return []

    def is_news(self, payload: str) -> bool:
        return runs.is_end_event(payload)


class Follower(Generic[AnyRun]):
    """
    Follows runs to their ends, on one connection after the other; `ended` has those that ended.

    `with_output`: also the lines that handlers print from now on. `was_started`: the runs were
    started and followed a moment ago, so the database was reached.
    """

    def __init__(
        self,
        read: Sequence[Read[AnyRun]],
        timeout_s: float | None = None,
        *,
        with_output: bool = False,
        was_started: bool = False,
    ) -> None:
        self.open = [one.run_id for one in read]
        self.ended: dict[UUID, AnyRun] = {}
        self._read = {one.run_id: one for one in read}
        self._with_output = with_output
        self._channels = Channels(is_followed=was_started)
        self._due = list(self.open)
        self._read_at: float | None = None  # when to read without a notification
        self._pause_s = MIN_PAUSE_S
        self._cost_s = 0.0  # of the last reading
        self._was_reached = was_started
        self._reconnect_s = 0.0
        self.limit(timeout_s)

    def limit(self, timeout_s: float | None) -> None:
        """Follow for so long from now."""
        self._timeout_s = timeout_s
        self._until = float("inf") if timeout_s is None else time.monotonic() + timeout_s

    def listen(self) -> Operation[None]:
        """Hear of what happens from now on."""
        undos = {one.undo.run_id: run_id for run_id, one in self._read.items() if one.undo}
        followed = [*self.open, *(undo for undo, run_id in undos.items() if run_id in self.open)]
        new: set[UUID] = yield from self._channels.follow(
            dict.fromkeys(followed, self._with_output)
        )
        self._is_due(undos.get(run_id, run_id) for run_id in new)

    def skip(self) -> Operation[None]:
        """Return nothing of what has happened so far."""
        for run_id in self.open:
            yield from self._read[run_id].read()

    def next(self) -> Operation[list[TimelineEntry]]:
        """
        Return what is new, as soon as there is anything; nothing once all runs have ended.

        Raises WaitTimeout; the runs go on. NotFound for an unknown one.
        """
        self._was_reached = True  # an operation begins when there is a connection for it
        while self.open:
            yield from self.listen()
            began = time.monotonic()
            while self._due:
                if entries := (yield from self._read_one(self._due[0])):
                    return entries
            now = time.monotonic()
            self._cost_s = max(self._cost_s, now - began)
            if self.open and (lines := (yield from self._pause(now))):
                return lines
        return []

    def wait(self) -> Operation[None]:
        """Follow to the end, on a connection that is used again afterwards."""
        try:
            yield from self.next()
        except RunError:
            yield from self._channels.follow({})
            raise
        yield from self._channels.follow({})

    def reconnect_s(self, error: Exception) -> float:
        """
        Return how long to wait before the next connection; raise this error if there is none.

        It waits for no database that was never reached: its URL may be wrong.
        """
        if not self._was_reached:
            raise error
        now = time.monotonic()
        if now >= self._until:
            raise self._timed_out() from error
        self._channels, self._due = Channels(), list(self.open)
        self._reconnect_s = doubled_s(self._reconnect_s, MIN_RECONNECT_S, MAX_RECONNECT_S)
        return min(self._reconnect_s, self._until - now)

    def _read_one(self, run_id: UUID) -> Operation[list[TimelineEntry]]:
        """Read a run that is due, with the last lines of its handlers before its end."""
        one = self._read[run_id]
        new = yield from one.read()
        self._due.remove(run_id)
        self._reconnect_s, self._read_at = 0.0, None
        if new:
            self._pause_s = MIN_PAUSE_S
        if one.run is None or not one.run.has_ended:
            return new
        if self._with_output:
            lines: list[TimelineEntry] = []  # that are still on their way
            until = time.monotonic() + LAST_LINES_S
            while time.monotonic() < until and (notices := (yield Notices(QUIET_S))):
                lines += self._heard(notices)
            at = next((at for at, entry in enumerate(new) if entry.is_end), len(new))
            new = [*new[:at], *lines, *new[at:]]
        self.open.remove(run_id)
        self.ended[run_id] = one.run
        return new

    def _pause(self, now: float) -> Operation[list[TimelineEntry]]:
        """Wait until a run is due to be read, or return the lines that come before."""
        if now >= self._until:
            raise self._timed_out()
        if self._read_at is None:
            pause_s = min(max(self._pause_s, self._cost_s * SHARE), MAX_PAUSE_S)
            self._pause_s, self._cost_s = min(self._pause_s * 1.5, MAX_PAUSE_S), 0.0
            self._read_at = now + (MAX_PAUSE_S if self._is_quiet else pause_s)
        until = min(self._read_at, self._until)
        if not self._is_quiet:
            until = min(until, self._channels.follow_at)
        while now < until:
            if lines := self._heard((yield Notices(until - now))):
                return lines
            if self._due:
                return []
            now = time.monotonic()
        self._is_due(self.open)
        return []

    def _heard(self, notices: Iterable[psycopg.Notify]) -> list[TimelineEntry]:
        """The lines among notifications; the others say which runs are due."""
        of_undo = {one.undo.run_id: run_id for run_id, one in self._read.items() if one.undo}
        lines = []
        for heard in self._channels.heard(notices):
            run_id = of_undo.get(heard.run_id, heard.run_id)
            one: Read[Any] = self._read[run_id]
            if heard.is_output and one.run is not None and (line := output_line(heard.payload)):
                if run_id == heard.run_id:  # else of its undo
                    lines.append(output_entry(one.run, line))
                elif one.undo and (found := undo_output(one.run, one.undo, line)):
                    lines.append(found)
            elif not heard.is_output and one.is_news(heard.payload):
                self._is_due([run_id])
        return lines

    def _is_due(self, run_ids: Iterable[UUID]) -> None:
        new = dict.fromkeys(run_ids).keys() - set(self._due)
        self._due += [run_id for run_id in self.open if run_id in new]

    @property
    def _is_quiet(self) -> bool:
        """Whether only the time tells of what somebody waits for."""
        return all(
            isinstance(one, Glance) and one.run is not None and one.run.status in _QUIET
            for one in (self._read[run_id] for run_id in self.open)
        )

    def _timed_out(self) -> WaitTimeout:
        found = {run_id: self._read[run_id].run for run_id in self.open}
        return wait_timeout(
            {run_id: run.status if run else RunStatus.STARTED for run_id, run in found.items()},
            self._timeout_s or 0.0,
        )


def wait_timeout(open: Mapping[UUID, RunStatus], timeout_s: float) -> WaitTimeout:
    """The error about runs that have not ended in time, by their statuses."""
    run_ids = list(open)
    first, is_one = run_ids[0], len(run_ids) == 1
    does = "it continues" if is_one else "they continue"
    remedy = f"`pgflowd runs wait {first}` waits again, `pgflowd runs cancel` ends it"
    for statuses, is_so, are_so, command, does_so in _STATES:
        named = [run_id for run_id in run_ids if open[run_id] in statuses]
        if named:
            does = is_so if is_one else f"{len(named)} of them {are_so}"
            remedy = f"`pgflowd runs {command} {named[0]}` {does_so}"
            break
    which = f"run {first} has" if is_one else f"{len(run_ids)} runs have"
    error = WaitTimeout(f"{which} not ended after {timeout_s:g} s; {does}", next=remedy)
    error.run_id = first
    return error


_WHY = ("show", "says for what")
_STATES = (
    ((RunStatus.PAUSED,), "it is paused", "are paused", "resume", "lets it go on"),
    (_WAITING, "it waits", "wait", *_WHY),
    ((RunStatus.SCHEDULED,), "it has not begun", "have not begun", "show", "says when it begins"),
    ((RunStatus.BLOCKED,), "it has not begun", "have not begun", *_WHY),
    ((RunStatus.UNDOING,), "it is being undone", "are being undone", "show", "says how far it is"),
)
