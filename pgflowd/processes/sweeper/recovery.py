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
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from pgflowd.core.messages import Asleep, NextDue, Released, Wake
from pgflowd.core.settings.sections import Settings
from pgflowd.core.sweeper import NEVER, Parts, SleepingQueues, SweeperPart
from pgflowd.core.text import counted
from pgflowd.db.tasks import Swept, postpone_stalled, resend, sweep, sweep_attempts, sweep_dead
from pgflowd.db.waits import arm_sleepers, writers
from pgflowd.db.workers import look_at_queues, renew_sleeping
from pgflowd.host.channel import Channel
from pgflowd.host.logs import Log
from pgflowd.processes.service import Service

RELEASE_AFTER_S = (0.0, 1.2, 3.0)  # the last statement of an ended worker may hold locks
DAY_S = 86400.0


class Work(NamedTuple):
    """A part of the work: when it wants to be done, how, and how its first row is put off.

    `do` raises, or returns, what went wrong: raised, it is done again after a pause.
    """

    part: SweeperPart
    at: Callable[[], float]
    do: Callable[[psycopg.Connection[Any]], BaseException | None]
    put_off: Callable[[psycopg.Connection[Any], str], None] = lambda conn, why: None


class Recovery:
    """The ended workers whose tasks are still to be released, and where the looks go on."""

    def __init__(
        self,
        service: Service,
        settings: Settings,
        parts: Parts,
        execute: Callable[..., Any],
        log: Log,
    ) -> None:
        self._service = service
        self._settings = settings
        self._parts = parts
        self._execute = execute
        self._log = log
        self._at = {
            SweeperPart.SWEEP: NEVER,
            SweeperPart.ATTEMPTS: NEVER,
            SweeperPart.RESEND: NEVER,
        }
        self._ended: dict[str, list[float]] = {}  # worker id: when to release
        self._released: dict[str, int] = {}
        self._swept: deque[tuple[float, Swept]] = deque()  # of the last day
        self._failed: list[dict[str, Any]] = []  # runs, by the current call
        self._quarantined: list[dict[str, Any]] = []  # tasks, likewise
        self._page: int | None = None  # before it, runs are looked at for lost messages next
        self._attempts_page: int | None = None  # likewise, attempts
        service.numbers |= {"recovered_24h": 0, "given_up_24h": 0}

    def works(self) -> list[Work]:
        part, at = SweeperPart, self._at
        return [
            Work(part.RELEASE, self._release_at, self._release, self._leave_to_sweep),
            Work(part.SWEEP, lambda: at[part.SWEEP], self._sweep, self._postpone_stalled),
            Work(
                part.ATTEMPTS, lambda: at[part.ATTEMPTS], self._sweep_attempts, self._skip_attempts
            ),
            Work(part.RESEND, lambda: at[part.RESEND], self._resend, self._skip_page),
        ]

    def connected(self, sweep_at: float) -> None:
        for part in self._at:
            self._at[part] = sweep_at

    def worker_ended(self, worker_id: str, now: float) -> None:
        self._ended.setdefault(worker_id, [now + wait_s for wait_s in RELEASE_AFTER_S])

    def on_given_up(self, told: dict[str, Any], *, is_run: bool) -> None:
        """A task was given up: its run has failed, or it was set aside."""
        (self._failed if is_run else self._quarantined).append(told)

    def forget_notices(self) -> None:
        self._failed.clear()
        self._quarantined.clear()

    def _release_at(self) -> float:
        return min((moments[0] for moments in self._ended.values()), default=NEVER)

    def _release(self, conn: psycopg.Connection[Any]) -> None:
        """Release the tasks of ended workers; confirm when none can be left."""
        now, most = time.monotonic(), self._parts[SweeperPart.RELEASE].portion.size
        for worker_id, moments in list(self._ended.items()):
            if moments[0] > now:
                continue
            swept = self._execute(conn, sweep_dead(UUID(worker_id), "its worker died", most))
            self._released[worker_id] = self._released.get(worker_id, 0) + swept.recovered
            self._report("its worker died", swept, worker_id)
            if swept.recovered + swept.given_up < most:
                self._next_release(worker_id)

    def _next_release(self, worker_id: str) -> None:
        moments = self._ended[worker_id]
        moments.pop(0)
        if not moments:
            del self._ended[worker_id]
            self._service.channel.send(Released(worker_id, self._released.pop(worker_id, 0)))

    def _leave_to_sweep(self, conn: psycopg.Connection[Any], why: str) -> None:
        """A task of the first ended worker cannot be released: its lease lapses."""
        first = min(self._ended, key=lambda each: self._ended[each][0], default=None)
        if first is not None:
            self._next_release(first)

    def _sweep(self, conn: psycopg.Connection[Any]) -> None:
        """Recover stalled tasks, a limited number at once."""
        most = self._parts[SweeperPart.SWEEP].portion.size
        swept = self._execute(conn, sweep(self._settings.recovery.stale_threshold_s, most))
        self._report("stalled", swept, None)
        if swept.recovered + swept.given_up < most:
            self._at[SweeperPart.SWEEP] = time.monotonic() + self._interval_s
            self._service.numbers["last_sweep_at"] = time.time()

    def _postpone_stalled(self, conn: psycopg.Connection[Any], why: str) -> None:
        self._execute(conn, postpone_stalled(why))

    def _sweep_attempts(self, conn: psycopg.Connection[Any]) -> None:
        """Recover tasks whose message is gone with their worker."""
        most = self._parts[SweeperPart.ATTEMPTS].portion.size
        swept, self._attempts_page = self._execute(conn, sweep_attempts(self._attempts_page, most))
        self._report("its message was gone", swept, None)
        self._at[SweeperPart.ATTEMPTS] = time.monotonic() + self._interval_s

    def _skip_attempts(self, conn: psycopg.Connection[Any], why: str) -> None:
        self._attempts_page = max(0, (self._attempts_page or 0) - 1) or None

    def _resend(self, conn: psycopg.Connection[Any]) -> None:
        """Send new messages for queued tasks that have none."""
        most = self._parts[SweeperPart.RESEND].portion.size
        resent = self._execute(conn, resend(self._page, most))
        self._report("its message was gone", Swept(resent.sent, 0), None)
        if resent.sent < most:
            self._page = resent.next_page
            self._at[SweeperPart.RESEND] = time.monotonic() + self._interval_s

    def _skip_page(self, conn: psycopg.Connection[Any], why: str) -> None:
        self._page = max(0, (self._page or 0) - 1) or None

    def _report(self, reason: str, swept: Swept, worker_id: str | None) -> None:
        """Log what a sweep did, and count it for the last day."""
        fields = {"reason": reason, "worker": worker_id}
        if swept.recovered:
            text = f"{counted(swept.recovered, 'stalled task')} given back"
            self._log.warning("sweeper.recovered", count=swept.recovered, error=text, **fields)
        if swept.given_up:
            text = f"{counted(swept.given_up, 'stalled task')} given up or set aside"
            fields |= {"code": "E408", "error": text}
            self._log.warning("sweeper.given_up", count=swept.given_up, **fields)
        for failed in self._failed:
            self._log.warning("run.failed", code="E408", **failed)
        for task in self._quarantined:
            self._log.warning("task.quarantined", code="E408", **task)
        now = time.monotonic()
        stalled = swept.recovered + swept.given_up
        if stalled:
            self._swept.append((now, swept))
        while self._swept and self._swept[0][0] < now - DAY_S:
            self._swept.popleft()
        numbers = self._service.numbers
        numbers["recovered_24h"] = sum(each.recovered for _, each in self._swept)
        numbers["given_up_24h"] = sum(each.given_up for _, each in self._swept)
        numbers["stalled"] = numbers.get("stalled", 0) + stalled
        if stalled:
            self._service.send_heartbeat_soon()

    @property
    def _interval_s(self) -> float:
        return self._settings.recovery.recovery_interval_s


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

    def __init__(self, settings: Settings, channel: Channel, execute: Callable[..., Any]) -> None:
        self._settings = settings
        self._channel = channel
        self._execute = execute
        self._writers: dict[str, tuple[str, ...] | None] = {}  # that may have missed a doorbell
        self.queues = SleepingQueues()

    def look(self, conn: psycopg.Connection[Any]) -> None:
        """Look at the queues that are due; wake the workers of those that have work."""
        now = time.monotonic()
        asleep = self.queues.take_due(now)
        if not asleep:
            return
        self._execute(conn, renew_sleeping([each.worker_id for each in asleep]))
        self._keep_doorbells(conn, asleep, now)
        for queue, due_in_s in self._execute(conn, look_at_queues([e.queue for e in asleep])):
            is_visible = due_in_s <= 0
            found = Wake(queue) if is_visible else NextDue(queue, time.monotonic() + due_in_s)
            if not self._channel.send(found):
                self.queues.look_by(queue, now + FULL_S)

    def renew(self, conn: psycopg.Connection[Any]) -> None:
        """Renew the rows of all of them."""
        if worker_ids := self.queues.worker_ids:
            self._execute(conn, renew_sleeping(worker_ids))

    def _keep_doorbells(
        self, conn: psycopg.Connection[Any], asleep: list[Asleep], now: float
    ) -> None:
        """Put up those that are gone. Look again while transactions are open that missed one."""
        owners = [
            (each.queue, each.worker_id)
            for each in asleep
            if self._settings.worker_for(each.queue).signal_strategy == "notify"
        ]
        for queue in self._execute(conn, arm_sleepers(owners)):
            self._writers[queue] = None
        for queue in [each.queue for each in asleep if each.queue in self._writers]:
            open_now = self._execute(conn, writers(queue, self._writers.pop(queue)))
            if open_now:
                self._writers[queue] = open_now
                self.queues.look_by(queue, now + AGAIN_S)
