"""
Gives back what workers have left behind: tasks whose lease has lapsed, whose worker has ended,
whose message is gone.

Each part takes so many at once as `core.sweeper` says. What cannot be given back alone is put
off: a stalled task keeps its lease for another minute; where only a page of a table is known the
next one is looked at.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import psycopg

from pgflowd.core.messages import Asleep, NextDue, Released, Wake
from pgflowd.core.sweeper import NEVER, SleepingQueues, SweeperPart
from pgflowd.core.text import counted
from pgflowd.db.tasks import Swept, postpone_stalled, resend, sweep, sweep_attempts, sweep_dead
from pgflowd.db.waits import arm_sleepers, writers
from pgflowd.db.workers import look_at_queues, renew_sleeping

if TYPE_CHECKING:
    from pgflowd.processes.sweeper.main import Sweeper

RELEASE_AFTER_S = (0.0, 1.2, 3.0)  # the last statement of an ended worker may hold locks
DAY_S = 86400.0


class Work(NamedTuple):
    """A part of the work: how it is done, and how its first row is put off.

    `do` raises, or returns, what went wrong: raised, it is done again after a pause. `at` is when
    it wants to be done, where its state in `Sweeper.parts` does not have that.
    """

    part: SweeperPart
    do: Callable[[psycopg.Connection[Any]], BaseException | None]
    put_off: Callable[[psycopg.Connection[Any], str], None] = lambda conn, why: None
    at: Callable[[], float] | None = None


class Recovery:
    """The ended workers whose tasks are still to be released, and where the looks go on."""

    def __init__(self, sweeper: Sweeper) -> None:
        self._sweeper = sweeper
        self._ended: dict[str, list[float]] = {}  # worker id: when to release
        self._released: dict[str, int] = {}
        self._swept: deque[tuple[float, Swept]] = deque()  # of the last day
        self.failed: list[dict[str, Any]] = []  # runs, by the current call, as notices tell
        self.quarantined: list[dict[str, Any]] = []  # tasks, likewise
        # before which page of a table attempts, and queued tasks, are looked at next
        self._pages: dict[SweeperPart, int | None] = {}
        sweeper.service.numbers |= {"recovered_24h": 0, "given_up_24h": 0}

    def works(self) -> list[Work]:
        part = SweeperPart
        return [
            Work(part.RELEASE, self._release, self._leave_to_sweep, self._release_at),
            Work(part.SWEEP, self._sweep, self._postpone_stalled),
            Work(part.ATTEMPTS, self._sweep_attempts, partial(self._skip_page, part.ATTEMPTS)),
            Work(part.RESEND, self._resend, partial(self._skip_page, part.RESEND)),
        ]

    def worker_ended(self, worker_id: str, now: float) -> None:
        self._ended.setdefault(worker_id, [now + wait_s for wait_s in RELEASE_AFTER_S])

    def _release_at(self) -> float:
        return min((moments[0] for moments in self._ended.values()), default=NEVER)

    def _release(self, conn: psycopg.Connection[Any]) -> None:
        """Release the tasks of ended workers; confirm when none can be left."""
        now, most = time.monotonic(), self._sweeper.most(SweeperPart.RELEASE)
        for worker_id, moments in list(self._ended.items()):
            if moments[0] > now:
                continue
            query = sweep_dead(UUID(worker_id), "its worker died", most)
            swept = self._sweeper.execute(conn, query)
            self._released[worker_id] = self._released.get(worker_id, 0) + swept.recovered
            self._report("its worker died", swept, worker_id)
            if swept.recovered + swept.given_up < most:
                self._next_release(worker_id)

    def _next_release(self, worker_id: str) -> None:
        moments = self._ended[worker_id]
        moments.pop(0)
        if not moments:
            del self._ended[worker_id]
            released = Released(worker_id, self._released.pop(worker_id, 0))
            self._sweeper.service.channel.send(released)

    def _leave_to_sweep(self, conn: psycopg.Connection[Any], why: str) -> None:
        """A task of the first ended worker cannot be released: its lease lapses."""
        first = min(self._ended, key=lambda each: self._ended[each][0], default=None)
        if first is not None:
            self._next_release(first)

    def _sweep(self, conn: psycopg.Connection[Any]) -> None:
        """Recover stalled tasks, a limited number at once."""
        sweeper, most = self._sweeper, self._sweeper.most(SweeperPart.SWEEP)
        swept = sweeper.execute(conn, sweep(sweeper.settings.recovery.stale_threshold_s, most))
        self._report("stalled", swept)
        if swept.recovered + swept.given_up < most:
            sweeper.rest(SweeperPart.SWEEP)
            sweeper.service.numbers["last_sweep_at"] = time.time()

    def _postpone_stalled(self, conn: psycopg.Connection[Any], why: str) -> None:
        self._sweeper.execute(conn, postpone_stalled(why))

    def _sweep_attempts(self, conn: psycopg.Connection[Any]) -> None:
        """Recover tasks whose message is gone with their worker."""
        part = SweeperPart.ATTEMPTS
        query = sweep_attempts(self._pages.get(part), self._sweeper.most(part))
        swept, self._pages[part] = self._sweeper.execute(conn, query)
        self._report("its message was gone", swept)
        self._sweeper.rest(part)

    def _resend(self, conn: psycopg.Connection[Any]) -> None:
        """Send new messages for queued tasks that have none."""
        part, most = SweeperPart.RESEND, self._sweeper.most(SweeperPart.RESEND)
        resent = self._sweeper.execute(conn, resend(self._pages.get(part), most))
        self._report("its message was gone", Swept(resent.sent, 0))
        if resent.sent < most:
            self._pages[part] = resent.next_page
            self._sweeper.rest(part)

    def _skip_page(self, part: SweeperPart, conn: psycopg.Connection[Any], why: str) -> None:
        self._pages[part] = max(0, (self._pages.get(part) or 0) - 1) or None

    def _report(self, reason: str, swept: Swept, worker_id: str | None = None) -> None:
        """Log what a sweep did, and count it for the last day."""
        log, service = self._sweeper.log, self._sweeper.service
        fields = {"reason": reason, "worker": worker_id}
        if swept.recovered:
            text = f"{counted(swept.recovered, 'stalled task')} given back"
            log.warning("sweeper.recovered", count=swept.recovered, error=text, **fields)
        if swept.given_up:
            text = f"{counted(swept.given_up, 'stalled task')} given up or set aside"
            fields |= {"code": "E408", "error": text}
            log.warning("sweeper.given_up", count=swept.given_up, **fields)
        for failed in self.failed:
            log.warning("run.failed", code="E408", **failed)
        for task in self.quarantined:
            log.warning("task.quarantined", code="E408", **task)
        now, stalled = time.monotonic(), swept.recovered + swept.given_up
        if stalled:
            self._swept.append((now, swept))
            service.send_heartbeat_soon()
        while self._swept and self._swept[0][0] < now - DAY_S:
            self._swept.popleft()
        numbers = service.numbers
        numbers["recovered_24h"] = sum(each.recovered for _, each in self._swept)
        numbers["given_up_24h"] = sum(each.given_up for _, each in self._swept)
        numbers["stalled"] = numbers.get("stalled", 0) + stalled


# Looks after sleeping workers: at their queues, their rows and their doorbells.
#
# All queues that are due are looked at in one statement. Workers with a visible message are woken;
# of others it is told when the next one will be visible. Their rows are renewed, since they count
# as served. Their doorbells are kept up until they wake; one that the server had lost is proved as
# workers do (docs/background/doorbells.md).
FULL_S = 0.1  # by then a full channel has room again
AGAIN_S = 1.0  # to the next look at transactions that have missed a doorbell


class Sleepers:
    """The queues of sleeping workers, and who may have missed a doorbell."""

    def __init__(self, sweeper: Sweeper) -> None:
        self._sweeper = sweeper
        self._writers: dict[str, tuple[str, ...] | None] = {}  # that may have missed a doorbell
        self.queues = SleepingQueues()

    def look(self, conn: psycopg.Connection[Any]) -> None:
        """Look at the queues that are due; wake the workers of those that have work."""
        now, execute = time.monotonic(), self._sweeper.execute
        asleep = self.queues.take_due(now)
        if not asleep:
            return
        execute(conn, renew_sleeping([each.worker_id for each in asleep]))
        self._keep_doorbells(conn, asleep, now)
        for queue, due_in_s in execute(conn, look_at_queues([each.queue for each in asleep])):
            is_visible = due_in_s <= 0
            found = Wake(queue) if is_visible else NextDue(queue, time.monotonic() + due_in_s)
            if not self._sweeper.service.channel.send(found):
                self.queues.look_by(queue, now + FULL_S)

    def renew(self, conn: psycopg.Connection[Any]) -> None:
        """Renew the rows of all of them."""
        if worker_ids := self.queues.worker_ids:
            self._sweeper.execute(conn, renew_sleeping(worker_ids))

    def _keep_doorbells(
        self, conn: psycopg.Connection[Any], asleep: list[Asleep], now: float
    ) -> None:
        """Put up those that are gone. Look again while transactions are open that missed one."""
        execute, settings = self._sweeper.execute, self._sweeper.settings
        owners = [
            (each.queue, each.worker_id)
            for each in asleep
            if settings.worker_for(each.queue).signal_strategy == "notify"
        ]
        for queue in execute(conn, arm_sleepers(owners)):
            self._writers[queue] = None
        for queue in [each.queue for each in asleep if each.queue in self._writers]:
            open_now = execute(conn, writers(queue, self._writers.pop(queue)))
            if open_now:
                self._writers[queue] = open_now
                self.queues.look_by(queue, now + AGAIN_S)
