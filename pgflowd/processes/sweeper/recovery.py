"""
Gives back what workers have left behind: tasks whose lease has lapsed, whose worker has ended,
whose message is gone.

Each part takes so many at once as `core.sweeper_parts` says. What cannot be given back alone is put
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

from pgflowd.core.messages import Released
from pgflowd.core.settings.sections import Settings
from pgflowd.core.sweeper_parts import NEVER, Parts, SweeperPart
from pgflowd.core.text import counted
from pgflowd.db.tasks import Swept, postpone_stalled, resend, sweep, sweep_attempts, sweep_dead
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
