"""
The sweeper's loop: does each part of its work when it is due, on one connection.

It puts stalled tasks back into the queue, and fails those that stalled too often. A task is stalled
when its worker vanished without reporting an outcome. Every `recovery_interval` the sweeper has the
database recover such tasks, and looks, in a part of a large table, for those whose message is gone.
It logs them, and the runs that failed as a result, which arrive as notices. The tasks of a worker
that the supervisor has reaped are released at once, and the supervisor gets an answer. After each
connect the sweeper first waits one `heartbeat_interval`, so that running workers report what
they kept. All it keeps is how its calls went, so a restart loses nothing.

It renews the rows of the daemon's workers that have no tasks, all in one statement, which also
reads their queues; the supervisor passes the answers on to the workers
(docs/background/supervision.md, rule 57). It looks after sleeping workers (`sleepers`), does what
is due (`due`), deletes what is older than the retention (`pruning`), watches the database
(`health`), counts what waits (`statistics`), and writes how the daemon is (`daemon_row`).

A part that fails is tried again with less, or later, and the others go on (`core.sweeper`);
recovery comes first in each turn.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from typing import Any

import psycopg

from pgflowd.core.failure import DatabaseFailure
from pgflowd.core.messages import (
    Asleep,
    Awake,
    ConnectionRefused,
    LookAtDaemons,
    LookAtDue,
    LookAtQueues,
    LookAtVersions,
    Message,
    ServeVersions,
    StatusPart,
    WorkerEnded,
    WorkerStanding,
    WorkerStarted,
    WorkerStopped,
)
from pgflowd.core.settings.sections import Settings
from pgflowd.core.supervision.tree import EXIT_ASKED
from pgflowd.core.sweeper import NEVER, Parts, SweeperPart
from pgflowd.db.definitions import served_versions
from pgflowd.db.errors import failure_of, sqlstate_of
from pgflowd.db.query import A, Query, execute
from pgflowd.db.waits import NOT_DONE, UNDO_ENDED, refill_limits
from pgflowd.db.workers import renew_rows
from pgflowd.errors import Unreachable
from pgflowd.host.channel import Channel
from pgflowd.host.logs import Log
from pgflowd.processes.service import CONNECTION_ERRORS, DatabaseLink, Service, StopRequested
from pgflowd.processes.sweeper.due import DueWork
from pgflowd.processes.sweeper.health import DaemonRow, DatabaseHealth, Statistics
from pgflowd.processes.sweeper.pruning import Pruning
from pgflowd.processes.sweeper.recovery import Recovery, Sleepers, Work

MOST = {  # of one call: tasks, runs, limits
    SweeperPart.RELEASE: 500,
    SweeperPart.SWEEP: 500,
    SweeperPart.ATTEMPTS: 500,
    SweeperPart.RESEND: 500,
    SweeperPart.LIMITS: 1000,
    SweeperPart.DUE: 100,
    SweeperPart.PRUNE: 100,
}
NEXT = "see sweeper.failed in the daemon's log, and `pgflowd doctor`"
TOO_LONG = (
    "see in pg_stat_activity what the database is busy with, or raise [database] statement_timeout"
)
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
        self._parts = Parts(time.monotonic(), MOST)
        self._at = dict.fromkeys(SweeperPart, NEVER)  # when parts of no other module are due
        self._pruning = Pruning(self._execute, log)
        interval_s = settings.recovery.recovery_interval_s
        self._row = DaemonRow(interval_s, service.channel, self._execute, log)
        self._recovery = Recovery(service, settings, self._parts, self._execute, log)
        self._workers: dict[str, None] = {}  # ids of those that are up
        self._limit: str | None = None  # behind it, limits are filled again next
        self._works = self._all_works()
        service.numbers["interval_s"] = settings.recovery.recovery_interval_s
        service.numbers |= self._due.counters.numbers

    def run(self) -> None:
        self._link.run(self._prepare, self._work)

    def leave(self) -> None:
        """Write that the daemon ends, if it does, and close the connection."""
        for order in self._service.orders:
            if isinstance(order, StatusPart):
                self._row.receive(order)
        self._link.leave(self._row.last())

    def _prepare(self, conn: psycopg.Connection[Any]) -> None:
        conn.add_notice_handler(self._on_notice)
        self._health.prepare(conn)

    def _on_notice(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.sqlstate in (RUN_FAILED, QUARANTINED):
            told = json.loads(notice.message_detail or "{}")
            self._recovery.on_given_up(told, is_run=notice.sqlstate == RUN_FAILED)
        elif notice.sqlstate == UNDO_ENDED:
            self._due.on_undo_ended(notice.message_detail or "{}")
        elif notice.sqlstate == NOT_DONE:
            self._due.on_not_done(notice.message_detail or "{}")
            self._health.look_at = time.monotonic()

    def _all_works(self) -> list[Work]:
        """All parts, in the order of a turn."""

        def at(part: SweeperPart) -> Callable[[], float]:
            return lambda: self._at[part]

        part, pruning = SweeperPart, self._pruning
        return [
            *self._recovery.works(),
            Work(part.LIMITS, at(part.LIMITS), self._refill),
            Work(part.DUE, lambda: self._due.look_at, self._due.do),
            Work(part.QUEUES, lambda: self._sleepers.queues.due, self._sleepers.look),
            Work(part.ROW, lambda: self._row.look_at, self._row.do),
            Work(part.PRUNE, lambda: pruning.look_at, self._prune, pruning.skip),
            Work(part.VERSIONS, at(part.VERSIONS), self._look_at_versions),
            Work(part.HEALTH, lambda: self._health.look_at, self._look),
            Work(part.WORKERS, at(part.WORKERS), self._renew_workers),
            Work(part.STATISTICS, at(part.STATISTICS), self._count),
        ]

    def _work(self, conn: psycopg.Connection[Any]) -> None:
        now = time.monotonic()
        sweep_at = now + self._settings.worker.heartbeat_interval_s
        part = SweeperPart
        self._recovery.connected(sweep_at)
        self._at[part.LIMITS] = self._at[part.STATISTICS] = sweep_at
        self._at[part.VERSIONS] = self._at[part.WORKERS] = self._health.look_at = now
        self._sleepers.queues.look_at_all(now)
        self._due.connected(now)
        self._pruning.connected(sweep_at)
        self._row.connected(now)
        while True:
            self._service.wait(min(self._parts[one.part].due(one.at()) for one in self._works))
            now = time.monotonic()
            while self._service.orders:
                self._obey(self._service.orders.popleft(), now)
            for work in self._works:
                if self._parts[work.part].due(work.at()) <= time.monotonic():
                    self._do(work, conn)
            self._parts.turned(time.monotonic())
            self._service.numbers["parts"] = self._parts.numbers()

    def _do(self, work: Work, conn: psycopg.Connection[Any]) -> None:
        """Do a part; if it fails, note that, and go on with the others unless the line is lost."""
        state = self._parts[work.part]
        try:
            if state.put_off:
                work.put_off(conn, state.put_off)
                state.put_off = ""
            failure = work.do(conn)
        except CONNECTION_ERRORS as error:
            known, sqlstate = self._note_failure(work.part, error), sqlstate_of(error)
            database = self._settings.database
            times = (database.reconnect_min_s, database.reconnect_max_s)
            state.failed(time.monotonic(), known, sqlstate, *times)
            self._service.numbers["parts"] = self._parts.numbers()
            if conn.closed or isinstance(error, Unreachable | OSError):
                raise
        else:
            if failure is None:
                state.succeeded(time.monotonic())
            else:
                state.error = self._note_failure(work.part, failure)

    def _note_failure(self, part: SweeperPart, error: BaseException) -> dict[str, str | None]:
        """Return the error for `status`, and log it the first time."""
        before = self._parts[part].error
        failure, text = failure_of(error)
        known = {
            "code": getattr(error, "code", "E331"),
            "text": text.partition(r"\n")[0],  # the log also has where in SQL it happened
            "next": getattr(error, "next", None)
            or (TOO_LONG if sqlstate_of(error) == "57014" else NEXT),
        }
        level = "warning" if failure is DatabaseFailure.RETRY else "error"
        is_known = before is not None and before["text"] == known["text"]
        fields = {"part": part.value, "code": known["code"], "error": text, "next": known["next"]}
        self._log.write("debug" if is_known else level, "sweeper.failed", **fields)
        return known

    def _obey(self, order: Message, now: float) -> None:
        """Note an order; it is carried out when it is due."""
        if isinstance(order, WorkerStarted):
            self._workers[order.worker_id] = None
        elif isinstance(order, WorkerStopped | WorkerEnded):
            self._workers.pop(order.worker_id, None)
        if isinstance(order, WorkerEnded):
            self._recovery.worker_ended(order.worker_id, now)
        elif isinstance(order, Asleep):
            self._sleepers.queues.add(order, now)
        elif isinstance(order, Awake):
            self._sleepers.queues.remove(order.queue)
        elif isinstance(order, LookAtQueues):
            self._sleepers.queues.look_at_all(now)
        elif isinstance(order, LookAtVersions):
            self._at[SweeperPart.VERSIONS] = now
        elif isinstance(order, LookAtDue):
            self._due.on_notification(now)
        elif isinstance(order, LookAtDaemons):
            self._row.times.looked_at(now)
        elif isinstance(order, StatusPart):
            self._row.receive(order)
        elif isinstance(order, ConnectionRefused):
            self._health.on_refused(now)

    def _look(self, conn: psycopg.Connection[Any]) -> None:
        self._due.check_schedules(conn)
        others = [
            *self._due.problems(time.monotonic()),
            *self._pruning.problems(),
            *self._statistics.problems,
        ]
        self._health.look(conn, others)
        self._health.look_at = time.monotonic() + self._interval_s

    def _renew_workers(self, conn: psycopg.Connection[Any]) -> None:
        """Renew the rows of the workers that have not done so lately, and tell them the answers."""
        pause_s = min(IDLE_INTERVALS * self._settings.shortest_heartbeat_s, IDLE_RENEWAL_S)
        self._sleepers.renew(conn)
        standings = []
        if self._workers:
            standings = self._execute(conn, renew_rows([*self._workers], pause_s / 2))
        for worker_id, standing in standings:
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
        self._at[SweeperPart.WORKERS] = time.monotonic() + pause_s

    def _refill(self, conn: psycopg.Connection[Any]) -> None:
        most = self._parts[SweeperPart.LIMITS].portion.size
        self._limit = self._execute(conn, refill_limits(self._limit, most))
        self._at[SweeperPart.LIMITS] = time.monotonic() + self._interval_s

    def _prune(self, conn: psycopg.Connection[Any]) -> None:
        if self._pruning.do(conn, self._parts[SweeperPart.PRUNE].portion.size):
            self._health.look_at = time.monotonic()

    def _count(self, conn: psycopg.Connection[Any]) -> None:
        self._at[SweeperPart.STATISTICS] = time.monotonic() + self._interval_s
        self._statistics.look(conn)

    def _look_at_versions(self, conn: psycopg.Connection[Any]) -> None:
        """Tell the supervisor which versions of flows are to be served."""
        with self._link.limited(conn):
            for name, flows in served_versions(conn):
                self._service.channel.send(ServeVersions(name, flows))
        self._at[SweeperPart.VERSIONS] = time.monotonic() + self._interval_s

    @property
    def _interval_s(self) -> float:
        return self._settings.recovery.recovery_interval_s

    def _execute(self, conn: psycopg.Connection[Any], query: Query[A]) -> A:
        self._recovery.forget_notices()  # of a call that was rolled back
        with self._link.limited(conn):
            return execute(conn, query)
