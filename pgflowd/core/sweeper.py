"""
The parts of a sweeper's work: when each succeeded last, when it is tried again, with how much.

A part that fails loses no other one its turn. What the supervisor reads of them are numbers of the
sweeper's heartbeat; it judges by its own clock (`core.documents.daemon_status`), since a sweeper
whose call hangs tells nothing. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID

from pgflowd.core.backoff import doubled_s
from pgflowd.core.messages import Asleep
from pgflowd.core.text import size
from pgflowd.errors import Problem

# How much one call takes of what waits: less after one that was too large, more after others.
#
# A statement over many rows fails as a whole, and one that took too long would fail again for ever
# if it were repeated unchanged. So whatever takes many at once has a portion: reports and claims of
# a worker (`core.worker.task`), each part of a sweeper's work. One row that fails alone is put off,
# so that the others go on.
#
# of SQLSTATE: what less at once may mend. 53: no memory, disk or locks; 54: a limit of the program;
# 55P03: no lock in time; 57014: too long. None: the connection was lost, perhaps by this very call.
_SIZE_STATES = ("53", "54", "55P03", "57014")


class CallSize(NamedTuple):
    """How many one call takes, of at most so many."""

    most: int
    size: int
    factor: int = 10

    @property
    def is_whole(self) -> bool:
        return self.size == self.most

    def cut(self) -> CallSize:
        """After a call that failed: a part of it, one at least."""
        return self._replace(size=smaller(self.size, self.factor))

    def grown(self) -> CallSize:
        """After a call that succeeded."""
        return self._replace(size=larger(self.size, self.most, self.factor))


def whole(most: int) -> CallSize:
    """The largest portion, with which one begins."""
    return CallSize(most, most)


def smaller(size: int, factor: int = 2) -> int:
    """How many to take after a call with so many that failed."""
    return max(1, size // factor)


def larger(size: int, most: int, factor: int = 2) -> int:
    """How many to take after a call that succeeded."""
    return min(most, factor * size)


def may_be_too_large(sqlstate: str | None) -> bool:
    """Whether a call that failed so may succeed with less."""
    return sqlstate is None or sqlstate.startswith(_SIZE_STATES)


NEVER = float("inf")


class SweeperPart(StrEnum):
    """In the order of a turn. The values are words of problems and log records."""

    RELEASE = "tasks of ended workers"
    SWEEP = "stalled tasks"
    ATTEMPTS = "attempts without a message"
    RESEND = "lost messages"
    LIMITS = "places of limits"
    DUE = "what is due"
    QUEUES = "sleeping workers"
    ROW = "the daemon's row"
    PRUNE = "retention"
    VERSIONS = "versions to serve"
    HEALTH = "the database's health"
    WORKERS = "rows of workers"
    STATISTICS = "statistics"


SINGLE = whole(1)


@dataclass
class PartState:
    """One part. All moments are those of one monotonic clock."""

    succeeded_at: float
    portion: CallSize = SINGLE
    at: float = NEVER  # when it wants to be done
    retry_at: float = -NEVER
    pause_s: float = 0.0
    put_off: str = ""  # why the first row is to be put off before the next try
    error: dict[str, str | None] | None = None  # of the last try: code, text, next

    def due(self, at: float) -> float:
        """When it is done next, if it wants to be at this moment."""
        return max(at, self.retry_at)

    def succeeded(self, now: float) -> None:
        self.succeeded_at, self.error = now, None
        self.retry_at, self.pause_s = -NEVER, 0.0
        self.portion = self.portion.grown()

    def failed(
        self,
        now: float,
        error: dict[str, str | None],
        sqlstate: str | None,
        min_s: float,
        max_s: float,
    ) -> None:
        """Try again with less, at once; with one row, without it; else after growing pauses."""
        self.error = error
        if may_be_too_large(sqlstate) and self.portion.most > 1 and not self.put_off:
            if self.portion.size == 1:
                self.put_off = error["text"] or "no reason given"
            self.portion = self.portion.cut()
            self.retry_at = now
            return
        self.pause_s = doubled_s(self.pause_s, min_s, max_s)
        self.retry_at = now + self.pause_s


class Parts(dict[SweeperPart, PartState]):
    """All parts, and what heartbeats tell of them."""

    def __init__(self, now: float, most: dict[SweeperPart, int]) -> None:
        super().__init__({part: PartState(now, whole(most.get(part, 1))) for part in SweeperPart})

    def turned(self, now: float) -> None:
        """A turn has ended: what has not failed had nothing more to do."""
        for state in self.values():
            if state.error is None:
                state.succeeded_at = now

    def numbers(self) -> dict[str, Any]:
        return {
            part.value: {"at": state.succeeded_at, **(state.error or {})}
            for part, state in self.items()
        }


# When the sweeper looks for what is due, and until when its row says that it sleeps.
#
# A sweeper that sleeps has a row, and whoever makes something due before its end notifies; so a
# sleeper misses nothing (docs/background/doorbells.md, section 4). While there is work all the time
# the row says that it is awake: it looks every few milliseconds, and nobody notifies. When it lies
# down it looks once more, and again while transactions are open that may have missed its row.
APART_S = 0.005  # between the beginnings of two looks
AWAKE_S = 0.02  # so long after its last work, and before a known moment, it does not lie down
ROW_S = (
    300.0  # for so long the row of one who knows of nothing lasts: to renew it costs three calls
)
BUSY_S = 0.1  # of work without a pause: then notifications save no time
WRITERS_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # between two looks at open transactions


@dataclass
class DueLooks:
    """All moments are those of one monotonic clock."""

    longest_s: float  # it looks at least so often
    look_at: float = -NEVER
    sleeps_until: float = -NEVER  # as its row says; a moment that has passed: it is awake
    writers: tuple[str, ...] = ()  # open transactions that may have missed the row
    _writers_looks: int = 0
    _next_at: float = NEVER  # the next moment that is known
    _began_at: float = -NEVER  # of the last look
    _worked_at: float = -NEVER
    _busy_since: float = NEVER
    _is_rung: bool = False
    _is_rung_in_vain: bool = False
    _is_refused: bool = False  # the last look, since another sweeper was at it

    def connected(self, now: float) -> None:
        """Notifications were missed, and the server may have lost the row."""
        self.look_at, self.sleeps_until, self.writers = now, -NEVER, ()

    def rung(self, now: float) -> None:
        """A notification came."""
        self._is_rung = True
        self.look_at = min(self.look_at, max(now, self._began_at + APART_S))

    def looked(self, began_at: float, now: float, done: int | None, next_s: float | None) -> None:
        """A look has ended. `done` None: another sweeper is at it; `next_s` None: nothing known."""
        self._began_at = began_at
        self._is_rung_in_vain = self._is_rung and not done
        self._is_rung, self._is_refused = False, done is None
        if done:
            self._worked_at = now
            self._busy_since = min(self._busy_since, now)
        elif self._is_idle(now):
            self._busy_since = NEVER
        self._next_at = NEVER if next_s is None else now + next_s
        self.look_at = min(max(self._next_at, began_at + APART_S), now + self.longest_s)
        if self.sleeps_until > now:
            self.look_at = min(self.look_at, self.sleeps_until)
        if self.writers:
            pause_s = WRITERS_S[min(self._writers_looks, len(WRITERS_S) - 1)]
            self.look_at = min(self.look_at, now + pause_s)

    def next_row_s(self, now: float) -> float | None:
        """
        For how long the row is to say from now on that it sleeps; None: the row stays as it is.

        Asked after each look. An answer above 0 is carried out by `lay_down` and another look, if
        the row has to be put up later than it was.
        """
        if self._is_refused:
            return None
        if self.sleeps_until > now:
            if now - self._busy_since >= BUSY_S:
                self._look_soon(now)
                return 0.0
            is_too_long = self.look_at < self.sleeps_until - AWAKE_S
            return self.look_at - now if self._is_rung_in_vain and is_too_long else None
        if self._is_idle(now) and self._next_at > now + AWAKE_S:
            return min(self._next_at - now, ROW_S)
        self._look_soon(now)
        return None

    def lay_down(self, now: float, for_s: float, writers: tuple[str, ...]) -> None:
        """The row was put up; these transactions are open that may have missed it. Look now."""
        self.sleeps_until = now + for_s
        self.writers, self._writers_looks = writers, 0
        self.look_at = now

    def shortened(self, now: float, for_s: float) -> None:
        """The row says that it sleeps less, or not at all."""
        self.sleeps_until = now + for_s

    def still_open(self, writers: tuple[str, ...]) -> None:
        """Of the transactions that may have missed the row these are open."""
        self.writers = writers
        self._writers_looks += 1

    def _look_soon(self, now: float) -> None:
        """Nobody notifies one that is awake."""
        self.look_at = min(self.look_at, max(now, self._began_at + APART_S))

    def _is_idle(self, now: float) -> bool:
        return now >= self._worked_at + AWAKE_S


# When a daemon's row in the database is written: every interval of its sweeper, and while somebody
# looks at the daemons every two seconds.
LOOK_LASTS_S = 60.0  # so long a notification counts; who goes on looking sends another one
LOOKED_AT_EVERY_S = 2.0


@dataclass
class RowTimes:
    """All moments are those of one monotonic clock."""

    interval_s: float
    ask_at: float = NEVER  # when the status is asked for
    _looked_until: float = -NEVER
    _asked_at: float = -NEVER

    def connected(self, now: float) -> None:
        """The row may be as old as the connection that was lost."""
        self.ask_at = now

    def looked_at(self, now: float) -> None:
        """Somebody looks at the daemons."""
        self._looked_until = now + LOOK_LASTS_S
        self.ask_at = min(self.ask_at, max(now, self._asked_at + LOOKED_AT_EVERY_S))

    def asked(self, now: float) -> None:
        """The status was asked for; an answer that does not come is asked for again."""
        is_looked_at = now + LOOKED_AT_EVERY_S <= self._looked_until
        pause_s = min(self.interval_s, LOOKED_AT_EVERY_S) if is_looked_at else self.interval_s
        self._asked_at, self.ask_at = now, now + pause_s


# The queues of sleeping workers, and when the sweeper looks at each again.
#
# Queues that are due at about the same time are looked at together, in one statement. A queue is
# looked at as soon as its worker sleeps, for a message may have come while it fell asleep.
EARLY = 0.5  # of a pause: so much earlier a queue may be looked at together with others


class SleepingQueues:
    """The queues by name, and the rows of their workers, which are renewed."""

    def __init__(self) -> None:
        self._orders: dict[str, Asleep] = {}
        self._look_at: dict[str, float] = {}

    @property
    def worker_ids(self) -> list[str]:
        return [order.worker_id for order in self._orders.values()]

    @property
    def due(self) -> float:
        """When to look next."""
        return min(self._look_at.values(), default=NEVER)

    def add(self, order: Asleep, now: float) -> None:
        """A worker sleeps: look at its queue at once."""
        self._orders[order.queue], self._look_at[order.queue] = order, now

    def remove(self, name: str) -> None:
        self._orders.pop(name, None)
        self._look_at.pop(name, None)

    def look_at_all(self, now: float) -> None:
        """Messages may have come that nobody announced."""
        self._look_at = dict.fromkeys(self._orders, now)

    def look_by(self, name: str, moment: float) -> None:
        """Look at one of them earlier than planned."""
        self._look_at[name] = min(self._look_at[name], moment)

    def take_due(self, now: float) -> list[Asleep]:
        """Return the queues to look at now, and plan the next look at each."""
        if now < self.due:
            return []
        taken = []
        for name, order in self._orders.items():
            pause_s = order.look_every_s
            if self._look_at[name] <= now + EARLY * pause_s:
                self._look_at[name] = now + pause_s
                taken.append(order)
        return taken


# When the sweeper deletes what is older than the retention, and when a database has grown too much.
#
# It prunes each hour, some runs at a time, from the oldest on. After each part it rests for as long
# as that took, so that pruning takes half of one connection's time at most. Where it fails, it
# tries again after growing pauses.
EVERY_S = 3600.0
MIN_RETRY_S = 60.0
# So much still fits into a small server's memory and into a quick backup, so below it nobody needs
# a retention. It is some 2,900,000 tasks: those of eight hours at 100 a second, of a month at one.
MANY_BYTES = 5_000_000_000
GROWS_NEXT = (
    "`pgflowd db set retention_completed 30d` has them deleted 30 days after they completed; see"
    " docs/operate/retention.md"
)


class RunPlace(NamedTuple):
    """After which run to go on."""

    after_at: datetime
    after_run: UUID


class Pruned(NamedTuple):
    """How many runs went, None while another sweeper is at it; where to go on, None at the end."""

    runs: int | None
    place: RunPlace | None


class Kept(NamedTuple):
    """What a database keeps: bytes, about how many runs, since when, and for how long."""

    size: int
    runs: int | None  # None: never analysed
    since: datetime | None
    completed: str | None  # the settings of retention
    failed: str | None


class PruneSchedule:
    """The next part, and from where."""

    def __init__(self) -> None:
        self.look_at = NEVER
        self.place: RunPlace | None = None
        self._retry_s = 0.0

    def connected(self, now: float) -> None:
        """Begin at the oldest run."""
        self.look_at, self.place = now, None

    def pruned(self, began_at: float, now: float, pruned: Pruned) -> None:
        self._retry_s = 0.0
        self.place = pruned.place
        self.look_at = now + (EVERY_S if pruned.place is None else now - began_at)

    def failed(self, now: float) -> None:
        self.place = None
        self._retry_s = doubled_s(self._retry_s, MIN_RETRY_S, EVERY_S)
        self.look_at = now + self._retry_s


def growth_problem(kept: Kept) -> Problem | None:
    """A database that is large, and from which completed runs are never deleted."""
    if kept.completed is not None or kept.size < MANY_BYTES:
        return None
    text = f"the database keeps {size(kept.size)} of runs, and no completed run is ever deleted"
    return Problem("W326", text, "database", GROWS_NEXT)


def told_retention(kept: Kept) -> str:
    """How long runs are kept, in words."""

    def told(after: Any) -> str:
        return "for ever" if after is None else f"for {after}"

    if kept.completed == kept.failed:
        return f"runs are kept {told(kept.completed)}"
    return f"completed runs are kept {told(kept.completed)}, others {told(kept.failed)}"
