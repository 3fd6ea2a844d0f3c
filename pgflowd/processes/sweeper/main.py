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
(docs/background/supervision.md, rule 57). It looks after sleeping workers, does what
is due (`due`), and watches the database, counts what waits, writes how the daemon is, and deletes
what is older than the retention (`health`).

A part that fails is tried again with less, or later, and the others go on (`core.sweeper`);
recovery comes first in each turn.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from pgflowd.core import messages as msg
from pgflowd.core.failure import DatabaseFailure
from pgflowd.core.messages import Asleep, NextDue, Released, Wake
from pgflowd.core.settings.sections import Settings
from pgflowd.core.supervision.tree import EXIT_ASKED
from pgflowd.core.sweeper import NEVER, Parts, SleepingQueues, SweeperPart
from pgflowd.core.text import counted
from pgflowd.db.connection import failure_of, sqlstate_of
from pgflowd.db.definitions import served_versions
from pgflowd.db.query import A, Query, execute
from pgflowd.db.tasks import Swept, postpone_stalled, resend, sweep, sweep_attempts, sweep_dead
from pgflowd.db.waits import NOT_DONE, UNDO_ENDED, arm_sleepers, refill_limits, writers
from pgflowd.db.workers import look_at_queues, renew_rows, renew_sleeping
from pgflowd.errors import Unreachable
from pgflowd.host.channel import Channel
from pgflowd.host.logs import Log
from pgflowd.processes.service import CONNECTION_ERRORS, DatabaseLink, Service, StopRequested
from pgflowd.processes.sweeper.due import DueWork
from pgflowd.processes.sweeper.health import DaemonRow, DatabaseHealth, Pruning, Statistics

MOST = {  # of one call: tasks, runs, limits
    SweeperPart.RELEASE: 500,
    SweeperPart.SWEEP: 500,
    SweeperPart.ATTEMPTS: 500,
    SweeperPart.RESEND: 500,
    SweeperPart.LIMITS: 1000,
    SweeperPart.DUE: 100,
    SweeperPart.PRUNE: 100,
}
AT_ONCE = {SweeperPart.VERSIONS, SweeperPart.WORKERS, SweeperPart.HEALTH}  # after a connect
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
    """The connection, the parts of the work, and the workers whose rows are renewed."""

    def __init__(self, service: Service, settings: Settings, log: Log) -> None:
        self.service = service
        self.settings = settings
        self.log = log
        self.link = DatabaseLink(service, settings, log, "sweeper", settings.database.url)
        self.parts = Parts(time.monotonic(), MOST)
        self._health = DatabaseHealth(self)
        self._sleepers = Sleepers(self)
        self._statistics = Statistics(self)
        self._due = DueWork(self)
        self._pruning = Pruning(self)
        self._row = DaemonRow(self)
        self._recovery = Recovery(self)
        self._workers: dict[str, None] = {}  # ids of those that are up
        self._limit: str | None = None  # behind it, limits are filled again next
        part, schedule = SweeperPart, self._pruning.schedule
        self._works = [  # in the order of a turn
            *self._recovery.works(),
            Work(part.LIMITS, self._refill),
            Work(part.DUE, self._due.do, at=lambda: self._due.looks.look_at),
            Work(part.QUEUES, self._sleepers.look, at=lambda: self._sleepers.queues.due),
            Work(part.ROW, self._row.do, at=lambda: self._row.look_at),
            Work(part.PRUNE, self._pruning.do, self._pruning.skip, lambda: schedule.look_at),
            Work(part.VERSIONS, self._look_at_versions),
            Work(part.HEALTH, self._look),
            Work(part.WORKERS, self._renew_workers),
            Work(part.STATISTICS, self._statistics.look),
        ]
        service.numbers["interval_s"] = settings.recovery.recovery_interval_s
        service.numbers |= self._due.counters.numbers

    def run(self) -> None:
        self.link.run(self._prepare, self._work)

    def leave(self) -> None:
        """Write that the daemon ends, if it does, and close the connection."""
        for order in self.service.orders:
            if isinstance(order, msg.StatusPart):
                self._row.receive(order)
        self.link.leave(self._row.last())

    def execute(self, conn: psycopg.Connection[Any], query: Query[A]) -> A:
        self._recovery.failed.clear()  # notices of a call that was rolled back
        self._recovery.quarantined.clear()
        with self.link.limited(conn):
            return execute(conn, query)

    def most(self, part: SweeperPart) -> int:
        """How much one call of this part may take."""
        return self.parts[part].portion.size

    def rest(self, part: SweeperPart) -> None:
        """Do this part again after an interval."""
        self.parts[part].at = time.monotonic() + self.settings.recovery.recovery_interval_s

    def _prepare(self, conn: psycopg.Connection[Any]) -> None:
        conn.add_notice_handler(self._on_notice)
        self._health.prepare(conn)

    def _on_notice(self, notice: psycopg.errors.Diagnostic) -> None:
        detail = notice.message_detail or "{}"
        if notice.sqlstate == RUN_FAILED:
            self._recovery.failed.append(json.loads(detail))
        elif notice.sqlstate == QUARANTINED:
            self._recovery.quarantined.append(json.loads(detail))
        elif notice.sqlstate == UNDO_ENDED:
            self._due.undos.append(json.loads(detail))
        elif notice.sqlstate == NOT_DONE:
            self._due.on_not_done(detail)
            self.parts[SweeperPart.HEALTH].at = time.monotonic()

    def _work(self, conn: psycopg.Connection[Any]) -> None:
        now = time.monotonic()
        sweep_at = now + self.settings.worker.heartbeat_interval_s
        for part, state in self.parts.items():
            state.at = now if part in AT_ONCE else sweep_at
        self._sleepers.queues.look_at_all(now)
        self._due.looks.connected(now)
        self._pruning.schedule.connected(sweep_at)
        self._row.connected(now)
        while True:
            self.service.wait(min(self._at(work) for work in self._works))
            now = time.monotonic()
            while self.service.orders:
                # note an order; it is carried out when it is due
                order = self.service.orders.popleft()
                if isinstance(order, msg.WorkerStarted):
                    self._workers[order.worker_id] = None
                elif isinstance(order, msg.WorkerStopped | msg.WorkerEnded):
                    self._workers.pop(order.worker_id, None)
                if isinstance(order, msg.WorkerEnded):
                    self._recovery.worker_ended(order.worker_id, now)
                elif isinstance(order, msg.Asleep):
                    self._sleepers.queues.add(order, now)
                elif isinstance(order, msg.Awake):
                    self._sleepers.queues.remove(order.queue)
                elif isinstance(order, msg.LookAtQueues):
                    self._sleepers.queues.look_at_all(now)
                elif isinstance(order, msg.LookAtVersions):
                    self.parts[SweeperPart.VERSIONS].at = now
                elif isinstance(order, msg.LookAtDue):
                    self._due.looks.rung(now)
                elif isinstance(order, msg.LookAtDaemons):
                    self._row.times.looked_at(now)
                elif isinstance(order, msg.StatusPart):
                    self._row.receive(order)
                elif isinstance(order, msg.ConnectionRefused):
                    self._health.on_refused(now)
            for work in self._works:
                if self._at(work) <= time.monotonic():
                    self._do(work, conn)
            self.parts.turned(time.monotonic())
            self.service.numbers["parts"] = self.parts.numbers()

    def _at(self, work: Work) -> float:
        """When a part is done next."""
        state = self.parts[work.part]
        return state.due(work.at() if work.at else state.at)

    def _do(self, work: Work, conn: psycopg.Connection[Any]) -> None:
        """Do a part; if it fails, note that, and go on with the others unless the line is lost."""
        state = self.parts[work.part]
        try:
            if state.put_off:
                work.put_off(conn, state.put_off)
                state.put_off = ""
            failure = work.do(conn)
        except CONNECTION_ERRORS as error:
            known, sqlstate = self._note_failure(work.part, error), sqlstate_of(error)
            database = self.settings.database
            times = (database.reconnect_min_s, database.reconnect_max_s)
            state.failed(time.monotonic(), known, sqlstate, *times)
            self.service.numbers["parts"] = self.parts.numbers()
            if conn.closed or isinstance(error, Unreachable | OSError):
                raise
        else:
            if failure is None:
                state.succeeded(time.monotonic())
            else:
                state.error = self._note_failure(work.part, failure)

    def _note_failure(self, part: SweeperPart, error: BaseException) -> dict[str, str | None]:
        """Return the error for `status`, and log it the first time."""
        before = self.parts[part].error
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
        self.log.write("debug" if is_known else level, "sweeper.failed", **fields)
        return known

    def _look(self, conn: psycopg.Connection[Any]) -> None:
        self._due.ticks.check(conn)
        others = [*self._due.problems(time.monotonic()), *self._statistics.problems]
        others += [self._pruning.problem] if self._pruning.problem else []
        self._health.look(conn, others)

    def _renew_workers(self, conn: psycopg.Connection[Any]) -> None:
        """Renew the rows of the workers that have not done so lately, and tell them the answers."""
        pause_s = min(IDLE_INTERVALS * self.settings.shortest_heartbeat_s, IDLE_RENEWAL_S)
        if asleep := self._sleepers.queues.worker_ids:
            self.execute(conn, renew_sleeping(asleep))
        if self._workers:
            query = renew_rows([*self._workers], pause_s / 2)
            for worker_id, own in self.execute(conn, query):
                told = (own.row, own.queued, own.oldest_queued_s, own.due_in_s, own.oldest_run)
                self.service.channel.send(msg.WorkerStanding(worker_id, *told))
        self.parts[SweeperPart.WORKERS].at = time.monotonic() + pause_s

    def _refill(self, conn: psycopg.Connection[Any]) -> None:
        query = refill_limits(self._limit, self.most(SweeperPart.LIMITS))
        self._limit = self.execute(conn, query)
        self.rest(SweeperPart.LIMITS)

    def _look_at_versions(self, conn: psycopg.Connection[Any]) -> None:
        """Tell the supervisor which versions of flows are to be served."""
        with self.link.limited(conn):
            for name, flows in served_versions(conn):
                self.service.channel.send(msg.ServeVersions(name, flows))
        self.rest(SweeperPart.VERSIONS)


# Gives back what workers have left behind: tasks whose lease has lapsed, whose worker has ended,
# whose message is gone. Each part takes so many at once as `core.sweeper` says. What cannot be
# given back alone is put off: a stalled task keeps its lease for another minute; where only a page
# of a table is known the next one is looked at.
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
        part, execute = SweeperPart, self._sweeper.execute
        return [
            Work(part.RELEASE, self._release, self._leave_to_sweep, self._release_at),
            Work(part.SWEEP, self._sweep, lambda conn, why: execute(conn, postpone_stalled(why))),
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
