"""
The sweeper's loop: does each thing when it is due, on one connection.

It puts stalled tasks back into the queue, and fails those that stalled too often. Queued tasks
whose message is gone get another one; of a large table it looks at a part in each sweep. A task is
stalled when its worker vanished without reporting an outcome. Every `recovery_interval` the sweeper
has the database recover such tasks. It logs them, and the runs that failed as a result, which
arrive as notices. The tasks of a worker that the supervisor has reaped are released at once, and
the supervisor gets an answer. After each connect the sweeper first waits one `heartbeat_interval`,
so that running workers report the outcomes they kept. It keeps no state, so a restart loses
nothing.

It renews the rows of the daemon's workers that have no tasks, all in one statement, which also
reads their queues; the supervisor passes the answers on to the workers
(docs/background/supervision.md, rule 57). It looks after sleeping workers (`sleepers`), does what
is due (`due`), deletes what is older than the retention (`pruning`), watches the database
(`health`), counts what waits (`statistics`), and writes how the daemon is (`daemon_row`).
"""

from __future__ import annotations

import contextlib
import json
import time
from collections import deque
from typing import Any
from uuid import UUID

import psycopg

from pgflowd.core.messages import (
    Asleep,
    Awake,
    ConnectionRefused,
    LookAtDaemons,
    LookAtDue,
    LookAtQueues,
    LookAtVersions,
    Message,
    Released,
    ServeVersions,
    StatusPart,
    WorkerEnded,
    WorkerStanding,
    WorkerStarted,
    WorkerStopped,
)
from pgflowd.core.settings.sections import Settings
from pgflowd.core.supervision.exits import EXIT_ASKED
from pgflowd.core.text import counted
from pgflowd.db.due import NOT_DONE, UNDO_ENDED
from pgflowd.db.limits import refill_limits
from pgflowd.db.query import A, Query, execute
from pgflowd.db.tasks import Swept, resend, sweep, sweep_dead
from pgflowd.db.versions import served_versions
from pgflowd.db.workers import renew_rows
from pgflowd.host.channel import Channel
from pgflowd.host.logs import Log
from pgflowd.processes.service import DatabaseLink, Service, StopRequested
from pgflowd.processes.sweeper.daemon_row import DaemonRow
from pgflowd.processes.sweeper.due import DueWork
from pgflowd.processes.sweeper.health import DatabaseHealth
from pgflowd.processes.sweeper.pruning import Pruning
from pgflowd.processes.sweeper.sleepers import Sleepers
from pgflowd.processes.sweeper.statistics import Statistics

MAX_TASKS = 500  # tasks per call
MAX_ROUNDS = 20  # calls of one sweep, so that released tasks do not wait long
RELEASE_AFTER_S = (0.0, 1.2, 3.0)  # the last statement of an ended worker may hold locks
DAY_S = 86400.0
RUN_FAILED = "PF011"  # the notice that a run failed because a task was given up
QUARANTINED = "PF014"  # the notice that a task was set aside instead
# Rows of idle workers are renewed three intervals apart, at most 15 s: they count as alive for 30 s
IDLE_INTERVALS = 3
IDLE_RENEWAL_S = 15.0


def main(channel: Channel, settings: Settings, log: Log) -> int:
    """Sweep until the supervisor asks to end."""
    sweeper = Sweeper(Service(channel, settings, log), settings, log)
    with contextlib.suppress(StopRequested):
        sweeper.run()
    sweeper.leave()
    return EXIT_ASKED


class Sweeper:
    """The connection, and the ended workers whose tasks are still to be released."""

    def __init__(self, service: Service, settings: Settings, log: Log) -> None:
        self._service = service
        self._settings = settings
        self._log = log
        self._link = DatabaseLink(service, settings, log, "sweeper", settings.database.url)
        self._health = DatabaseHealth(service, self._link, log)
        self._sleepers = Sleepers(settings, service.channel, self._execute)
        self._statistics = Statistics(service.numbers, self._execute)
        self._due = DueWork(settings.recovery.recovery_interval_s, self._execute, log)
        self._pruning = Pruning(self._execute, log)
        interval_s = settings.recovery.recovery_interval_s
        self._row = DaemonRow(interval_s, service.channel, self._execute, log)
        self._ended_workers: dict[str, list[float]] = {}  # worker id: when to release
        self._workers: dict[str, None] = {}  # ids of those that are up
        self._released: dict[str, int] = {}
        self._swept: deque[tuple[float, Swept]] = deque()  # of the last day
        self._failed: list[dict[str, Any]] = []  # runs, by the current call
        self._quarantined: list[dict[str, Any]] = []  # tasks, likewise
        self._page: int | None = None  # before it, runs are looked at for lost messages next
        self._limit: str | None = None  # behind it, limits are filled again next
        self._versions_due = True
        service.numbers["interval_s"] = settings.recovery.recovery_interval_s
        service.numbers |= self._due.counters.numbers
        service.numbers["recovered_24h"] = 0
        service.numbers["given_up_24h"] = 0

    def run(self) -> None:
        self._link.run(self._prepare, self._work)

    def leave(self) -> None:
        """Write that the daemon ends, if it does."""
        for order in self._service.orders:
            if isinstance(order, StatusPart):
                self._row.receive(order)
        if query := self._row.last():
            self._link.leave(query)

    def _prepare(self, conn: psycopg.Connection[Any]) -> None:
        conn.add_notice_handler(self._on_notice)
        self._health.prepare(conn)

    def _on_notice(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.sqlstate == RUN_FAILED:
            self._failed.append(json.loads(notice.message_detail or "{}"))
        elif notice.sqlstate == QUARANTINED:
            self._quarantined.append(json.loads(notice.message_detail or "{}"))
        elif notice.sqlstate == UNDO_ENDED:
            self._due.on_undo_ended(notice.message_detail or "{}")
        elif notice.sqlstate == NOT_DONE:
            self._due.on_not_done(notice.message_detail or "{}")
            self._health.look_at = time.monotonic()

    def _work(self, conn: psycopg.Connection[Any]) -> None:
        self._look(conn)
        renew_at = time.monotonic()
        sweep_at = renew_at + self._settings.worker.heartbeat_interval_s
        interval_s = min(IDLE_INTERVALS * self._settings.shortest_heartbeat_s, IDLE_RENEWAL_S)
        self._sleepers.queues.look_at_all(renew_at)
        self._due.connected(renew_at)
        self._pruning.connected(sweep_at)
        self._row.connected(renew_at)
        while True:
            due = [moments[0] for moments in self._ended_workers.values()]
            due += [sweep_at, renew_at, self._health.look_at, self._sleepers.queues.due]
            due += [self._due.look_at, self._pruning.look_at, self._row.times.ask_at]
            self._service.wait(min(due))
            now = time.monotonic()
            while self._service.orders:
                self._obey(self._service.orders.popleft(), now)
            self._due.do(conn)
            self._sleepers.look(conn, now)
            self._row.do(conn, now)
            if self._pruning.do(conn):
                self._health.look_at = now
            if self._versions_due:
                self._look_at_versions(conn)
            if now >= self._health.look_at:
                self._due.check_schedules(conn)
                self._look(conn)
            if now >= renew_at:
                renew_at = now + interval_s
                self._renew_workers(conn, interval_s / 2)
            for worker_id, moments in list(self._ended_workers.items()):
                if moments[0] <= now:
                    self._release(conn, worker_id, moments)
            if sweep_at <= now:
                self._sweep(conn)
                sweep_at = now + self._settings.recovery.recovery_interval_s

    def _obey(self, order: Message, now: float) -> None:
        """Note an order; it is carried out when it is due."""
        if isinstance(order, WorkerStarted):
            self._workers[order.worker_id] = None
        elif isinstance(order, WorkerStopped | WorkerEnded):
            self._workers.pop(order.worker_id, None)
        if isinstance(order, WorkerEnded) and order.worker_id not in self._ended_workers:
            moments = [now + wait_s for wait_s in RELEASE_AFTER_S]
            self._ended_workers[order.worker_id] = moments
        elif isinstance(order, Asleep):
            self._sleepers.queues.add(order, now)
        elif isinstance(order, Awake):
            self._sleepers.queues.remove(order.queue)
        elif isinstance(order, LookAtQueues):
            self._sleepers.queues.look_at_all(now)
        elif isinstance(order, LookAtVersions):
            self._versions_due = True
        elif isinstance(order, LookAtDue):
            self._due.on_notification(now)
        elif isinstance(order, LookAtDaemons):
            self._row.times.looked_at(now)
        elif isinstance(order, StatusPart):
            self._row.receive(order)
        elif isinstance(order, ConnectionRefused):
            self._health.on_refused(now)

    def _look(self, conn: psycopg.Connection[Any]) -> None:
        others = [
            *self._due.problems(time.monotonic()),
            *self._pruning.problems(),
            *self._statistics.problems,
        ]
        self._health.look(conn, others)

    def _renew_workers(self, conn: psycopg.Connection[Any], after_s: float) -> None:
        """Renew the rows of the workers that have not done so lately, and tell them the answers."""
        self._sleepers.renew(conn)
        if not self._workers:
            return
        for worker_id, standing in self._execute(conn, renew_rows([*self._workers], after_s)):
            self._service.channel.send(
                WorkerStanding(
                    worker_id,
                    standing.row,
                    standing.queued,
                    standing.oldest_queued_s,
                    standing.due_in_s,
                    standing.oldest_run,
                )
            )

    def _release(self, conn: psycopg.Connection[Any], worker_id: str, moments: list[float]) -> None:
        """Release the tasks of an ended worker; confirm when none can be left."""
        swept = self._execute(conn, sweep_dead(UUID(worker_id), "its worker died", MAX_TASKS))
        self._released[worker_id] = self._released.get(worker_id, 0) + swept.recovered
        self._report("its worker died", swept, worker_id)
        if swept.recovered + swept.given_up < MAX_TASKS:
            moments.pop(0)
        if not moments:
            del self._ended_workers[worker_id]
            self._service.channel.send(Released(worker_id, self._released.pop(worker_id)))

    def _sweep(self, conn: psycopg.Connection[Any]) -> None:
        """Recover stalled tasks, a limited number at once; look first, since a sweep may fail."""
        self._due.check_schedules(conn)
        self._look(conn)
        threshold_s = self._settings.recovery.stale_threshold_s
        for _ in range(MAX_ROUNDS):
            swept = self._execute(conn, sweep(threshold_s, MAX_TASKS))
            self._report("stalled", swept, None)
            self._due.do(conn)
            if swept.recovered + swept.given_up < MAX_TASKS:
                break
        for _ in range(MAX_ROUNDS):
            resent = self._execute(conn, resend(self._page, MAX_TASKS))
            self._report("its message was gone", Swept(resent.sent, 0), None)
            self._due.do(conn)
            if resent.sent < MAX_TASKS:
                self._page = resent.next_page
                break
        self._limit = self._execute(conn, refill_limits(self._limit))
        self._statistics.look(conn)
        self._look_at_versions(conn)
        self._service.numbers["last_sweep_at"] = time.time()

    def _look_at_versions(self, conn: psycopg.Connection[Any]) -> None:
        """Tell the supervisor which versions of flows are to be served."""
        with self._link.limited(conn):
            for name, flows in served_versions(conn):
                self._service.channel.send(ServeVersions(name, flows))
        self._versions_due = False

    def _execute(self, conn: psycopg.Connection[Any], query: Query[A]) -> A:
        self._failed.clear()  # notices of a call that was rolled back do not count
        self._quarantined.clear()
        with self._link.limited(conn):
            return execute(conn, query)

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
